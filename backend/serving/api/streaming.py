"""Audio over HTTP while it is generated: raw, or as server-sent events; stops as soon as the client disconnects."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backend.audio.formats import FORMAT_TABLE, AudioFormat
from backend.errors import EncoreError
from backend.provenance.statement import SpeechStatement
from backend.serving.api.errors import ApiError, error_response, outcome_of, status_of
from backend.serving.api.events import SSE_MEDIA_TYPE, error_event, event
from backend.serving.api.metrics import ApiMetrics
from backend.serving.requests import AudioChunk, SpeechBegun, SpeechFailure, SpeechSummary, SynthesisEvent

PROVENANCE_HEADER = "x-encore-provenance"
LEAD_HEADER = "x-encore-lead-seconds"
"""How much sound a player should have in hand before it begins, so that it need not stop; nothing is held back."""

Answer = TypeVar("Answer")

_logger = logging.getLogger(__name__)


class StreamedSpeech(Response):
    """Responds with an error's own status until there is audio, and with audio from then on."""

    def __init__(
        self, items: AsyncGenerator[SynthesisEvent], *, audio_format: AudioFormat, is_sse: bool, metrics: ApiMetrics
    ) -> None:
        # Not Response's own constructor: there is no body yet to take a length from.
        self.status_code, self.background, self.body = 200, None, b""
        self.media_type = SSE_MEDIA_TYPE if is_sse else FORMAT_TABLE[audio_format].media_type
        self._items, self._is_sse, self._metrics = items, is_sse, metrics
        self._has_started = False
        self._outcome = "cancelled"
        self._summary: SpeechSummary | None = None
        self.raw_headers = [
            (b"content-type", self.media_type.encode()),
            (b"cache-control", b"no-store"),
            # Proxies that collect a response before they pass it on would collect all of the speech.
            (b"x-accel-buffering", b"no"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the speech ends or the client disconnects."""
        self._metrics.begin()
        sending = asyncio.create_task(self._send(scope, receive, send))
        watching = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            # Also when this very request is cancelled, as a proxy does when its client has left.
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)
            await self._items.aclose()
            self._metrics.end(self._outcome, self._summary)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async for item in self._items:
                match item:
                    case SpeechFailure():
                        raise item.error
                    case SpeechBegun():
                        # A second one comes where a process was lost before any sound, and another one began anew.
                        kept = [header for header in self.raw_headers if header[0] != PROVENANCE_HEADER.encode()]
                        self.raw_headers = kept + provenance_headers(item.statement)
                    case AudioChunk():
                        await self._send_chunk(send, item)
                    case SpeechSummary():
                        await self._finish(send, item)
        except EncoreError as error:
            self._outcome = outcome_of(error)
            if not self._has_started:
                self._metrics.refuse(status_of(error))
                await error_response(error)(scope, receive, send)
                return
            _logger.warning("a speech broke off: %s", error)
            if self._is_sse:
                await self._send_bytes(send, error_event(error), is_last=True)
            # Sound has no place for an error. Left without an end, it makes the server break the connection, by which
            # clients notice; an exception would, too, and fill the log with what is no fault of the program.

    async def _send_chunk(self, send: Send, item: AudioChunk) -> None:
        content = item.content
        # Formats without an end of their own leave nothing for the last chunk.
        if not content:
            return
        lead = None if item.lead_seconds is None else round(item.lead_seconds, 2)
        if self._is_sse:
            told = {} if lead is None else {"lead_seconds": lead}
            content = event("speech.audio.delta", {"audio": base64.b64encode(content).decode()} | told)
        elif lead is not None:
            self.raw_headers.append((LEAD_HEADER.encode(), str(lead).encode()))
        await self._send_bytes(send, content)

    async def _finish(self, send: Send, summary: SpeechSummary) -> None:
        self._outcome, self._summary = "done", summary
        last = b""
        if self._is_sse:
            # Clients expect tokens; what they pay here is characters read and frames spoken.
            num_characters = len(summary.facts.text)
            usage = {
                "input_tokens": num_characters,
                "output_tokens": summary.num_frames,
                "total_tokens": num_characters + summary.num_frames,
            }
            done = {"usage": usage, "finish_reason": summary.facts.finish_reason}
            problem = {"take_problem": summary.take_problem} if summary.take_problem else {}
            last = event("speech.audio.done", done | problem)
        await self._send_bytes(send, last, is_last=True)

    async def _send_bytes(self, send: Send, content: bytes, *, is_last: bool = False) -> None:
        if not self._has_started:
            self._has_started = True
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": content, "more_body": not is_last})


def provenance_headers(statement: SpeechStatement | None) -> list[tuple[bytes, bytes]]:
    """What an answer with sound says of it, also where its format has no place for that."""
    return [] if statement is None else [(PROVENANCE_HEADER.encode(), statement.as_json().encode())]


async def while_connected(request: Request, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Work for as long as the client waits for the response.

    Raises:
        ApiError: the client has disconnected, and will not read this either.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_until_gone(request.receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ApiError(499, "The client is gone.", code="cancelled")
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
