"""The API and its engines in one process: what a laptop needs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TypeVar

import uvicorn
from fastapi import FastAPI

from backend.serving.deploy.factory import build_api, build_synthesizer, facts_of, open_stores
from backend.serving.deploy.threads import iterate_in_thread
from backend.serving.engine.fair_share import FairShare
from backend.serving.errors import EngineBusy, ServingError
from backend.serving.protocol import ServiceState
from backend.serving.requests import SoundEvent, SpeechFailure, SynthesisEvent, SynthesisRequest
from backend.serving.settings import ServeSettings
from backend.serving.synthesizer import Synthesizer
from backend.web.broken_answers import hush_broken_answers
from backend.web.connections import BoundedProtocol
from training.model.device import device_line

Event = TypeVar("Event")

GRACE_SECONDS = 10
"""How long speeches may go on after an interruption."""

MAX_REQUESTS = 40
"""Eight that speak and thirty-two that wait; each holds a thread, which mostly sleeps."""


class LocalSpeech:
    """Speaks with engines of this process."""

    def __init__(self, synthesizer: Synthesizer, max_requests: int = MAX_REQUESTS) -> None:
        self._synthesizer = synthesizer
        self._places = FairShare(max_requests, "requests are being served")
        # As many as the reserve of places holds, too.
        self._executor = ThreadPoolExecutor(2 * max_requests, thread_name_prefix="speech")

    @property
    def num_requests(self) -> int:
        """Being served now."""
        return len(self._places)

    async def speak(self, order: SynthesisRequest) -> AsyncGenerator[SynthesisEvent]:
        """Audio as it is made, then a summary; or a failure as the last event."""
        async with aclosing(self._iterate(order, self._synthesizer.events)) as items:
            async for item in items:
                yield item

    async def sound(self, order: SynthesisRequest) -> AsyncGenerator[SoundEvent]:
        """Samples as they are made, for a stream in another process; a failure is the last event."""
        async with aclosing(self._iterate(order, self._synthesizer.sound)) as items:
            async for item in items:
                yield item

    async def _iterate(
        self, order: SynthesisRequest, make: Callable[[SynthesisRequest, Callable[[], bool]], Iterator[Event]]
    ) -> AsyncGenerator[Event | SpeechFailure]:
        try:
            leave = self._places.enter(order.client)
        except EngineBusy as error:
            yield SpeechFailure(error=error)
            return
        items = iterate_in_thread(self._executor, lambda cancelled: make(order, cancelled))
        try:
            async for item in items:
                yield item
        finally:
            leave()
            await items.aclose()

    async def forget_deleted(self) -> None:
        """Drop what is held in memory of voices that have been deleted."""
        await asyncio.to_thread(self._synthesizer.forget_deleted)

    async def state(self, *, with_engines: bool = False) -> ServiceState:
        """Its state."""
        if not with_engines:
            return ServiceState(is_healthy=self._synthesizer.is_healthy)
        # Reads what the system says of each mapping.
        memory = await asyncio.to_thread(self._synthesizer.memory)
        engines = self._synthesizer.statistics()
        return ServiceState(is_healthy=self._synthesizer.is_healthy, engines=engines, memory=memory)

    def close(self) -> None:
        """End the engines and the threads."""
        self._synthesizer.close()
        self._executor.shutdown(wait=True)


def serve_locally(settings: ServeSettings) -> None:
    """Serve until interrupted.

    Raises:
        EncoreError: the port is taken, or the model cannot be loaded.
    """
    # Taken first: a model is loaded for nothing where nobody can be answered.
    listener = _listen(settings.host, settings.port)
    with listener:
        service = LocalSpeech(build_synthesizer(settings.engine), settings.engine.max_requests)
        try:
            api = build_api(settings, service, open_stores(settings), facts_of(settings))
            address, port = listener.getsockname()[:2]
            shown = f"[{address}]" if ":" in address else address
            print(f"Speech API: http://{shown}:{port}/v1 (Ctrl+C ends it)", flush=True)
            print(device_line(settings.engine.device), flush=True)
            server_of(api, settings.trusted_proxies).run(sockets=[listener])
        finally:
            service.close()


def server_of(api: FastAPI, trusted_proxies: Sequence[str] = ()) -> uvicorn.Server:
    """A server of the API, not yet running; `trusted_proxies` are believed where a request comes from."""
    config = uvicorn.Config(
        api,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
        http=BoundedProtocol,
        ws="none",
        forwarded_allow_ips=list(trusted_proxies),
    )
    hush_broken_answers()
    return uvicorn.Server(config)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ServingError(
            f"Port {port} on {host} cannot be listened on: {error.strerror}. Choose another one with --port."
        ) from error
