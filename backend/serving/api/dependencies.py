"""Dependencies of the routes: the speech service, the voices, and the limits of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, cast

from fastapi import Depends, Request

from backend.provenance.check import Checker
from backend.serving.api.allowance import Allowance
from backend.serving.api.errors import ApiError, RequestTimedOut
from backend.serving.api.metrics import ApiMetrics, MetricTotals
from backend.serving.api.stored import RecordingChecker, Signer, TakeStore, VoiceStore
from backend.serving.api.take_recorder import TakeRecorder
from backend.serving.api.threads import slowly
from backend.serving.api.tracing import SpeechTracing
from backend.serving.protocol import SpeechService
from backend.serving.requests import (
    AudioChunk,
    Reference,
    SpeechBegun,
    SpeechGoesOn,
    SpeechSummary,
    SynthesisEvent,
    SynthesisRequest,
)
from backend.settings import MAX_CHARACTERS
from backend.voices.voice import Voice
from training.model.hub.hub import short_name

TIMEOUT_SECONDS = 120.0
"""A request ends after this long in which nothing is spoken; a large checkpoint may have to be loaded for it."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """How a text is to be spoken: at most one of the two is not empty."""

    style: str = ""
    instruction: str = ""


@dataclass(frozen=True, kw_only=True)
class ApiContext:
    """What routes work with: what everybody shares, and of voices and takes only those of the tenant who asks.

    Attributes:
        service: the synthesizer, in this process or in replicas.
        voices: the registry, read for each request, so that a new voice needs no restart.
        model_name: the base model as it was configured: a name, or a folder, which no client is told.
        can_instruct: whether it follows instructions.
        timeout_seconds: between two chunks of audio, also of a file that is sent once it is whole.
        max_characters: of one text.
        metrics: counts.
        takes: where what was spoken is kept; None keeps nothing.
        signer: signs what leaves as a whole file; None signs nothing.
        checker: says of recordings what they say of themselves.
        totals: adds up counts, where several processes take requests; None where there is only this one.
        process: what this one is called there.
        started_at: since when it is served.
        tracing: makes spans of what is spoken.
        tenant: who asks; empty for the operator.
        allowance: what they may still do.
    """

    service: SpeechService
    voices: VoiceStore
    model_name: str
    can_instruct: bool = False
    timeout_seconds: float = TIMEOUT_SECONDS
    max_characters: int = MAX_CHARACTERS
    metrics: ApiMetrics = field(default_factory=ApiMetrics)
    totals: MetricTotals | None = None
    process: str = ""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    takes: TakeStore | None = None
    signer: Signer | None = None
    checker: RecordingChecker = field(default_factory=Checker)
    tracing: SpeechTracing | None = None
    tenant: str = ""
    allowance: Allowance = field(default_factory=Allowance)

    def of_tenant(self, tenant: str, allowance: Allowance) -> ApiContext:
        """The same for one request of a tenant, who finds nothing of anybody else in it."""
        return replace(
            self,
            voices=self.voices.of_tenant(tenant, allowance.limits.max_voices),
            takes=self.takes.of_tenant(tenant) if self.takes is not None else None,
            tenant=tenant,
            allowance=allowance,
        )

    @property
    def model_id(self) -> str:
        """What clients call the base model."""
        return short_name(self.model_name)

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served here. Raises ApiError."""
        if name not in (None, self.model_id, self.model_name):
            raise ApiError(
                404,
                f"The model {name[:100]!r} is not served here; {self.model_id!r} is. Choose it, or leave model out.",
                param="model",
                code="model_not_found",
            )

    def check_input(self, text: str) -> str:
        """Refuse a text that is longer than the limit. Raises ApiError."""
        if len(text) > self.max_characters:
            raise ApiError(
                400,
                f"The input has {len(text)} characters; the limit is {self.max_characters}. Send it in parts.",
                param="input",
                code="string_above_max_length",
            )
        return text

    def told_how(self, voice: Voice | Reference, instructions: str | None) -> Told:
        """What instructions mean to a voice: one of its styles, or free text for a model that follows it.

        Raises:
            VoiceStyleUnknown: the voice has styles, and these are none of them.
            ApiError: they would be ignored.
        """
        text = (instructions or "").strip()
        if not text:
            return Told()
        if isinstance(voice, Voice) and (voice.styles or voice.kind == "fine-tuned"):
            # A fine-tuned voice speaks with its own checkpoint, which knows its styles and nothing else.
            if voice.styles:
                return Told(style=voice.style(text).name)
        elif self.can_instruct:
            return Told(instruction=text)
        raise ApiError(
            400,
            "This model clones voices and does not follow instructions, and the voice has no styles. Leave "
            "instructions out.",
            param="instructions",
            code="unsupported_parameter",
        )

    async def find_voice(self, name: str) -> Voice:
        """The current state of a stored voice. Raises VoiceNotFound."""
        return await asyncio.to_thread(self.voices.get, name)

    def speak(self, order: SynthesisRequest) -> AsyncGenerator[SynthesisEvent]:
        """Speak, as `_spoken` does; traced where that was asked for."""
        return self._spoken(order) if self.tracing is None else self.tracing.follow(order, self._spoken(order))

    async def _spoken(self, order: SynthesisRequest) -> AsyncGenerator[SynthesisEvent]:
        """Pass a request on, sign a file that is whole, and store the take; its characters count once there is sound.

        Raises:
            QuotaExceeded: the tenant has not so many characters left.
            RequestTimedOut: nothing was spoken for too long.
        """
        keeper = TakeRecorder(self.takes, order)
        async with self.allowance.spending(len(order.text)) as spending, aclosing(self._speak_in_time(order)) as items:
            with closing(keeper):
                whole = b""
                async for item in items:
                    spending.is_spoken = spending.is_spoken or isinstance(item, AudioChunk)
                    match item:
                        case AudioChunk() if not order.is_streamed:
                            whole += item.content
                            continue
                        case SpeechSummary() if whole:
                            content, item = await slowly(self._sign, whole, item)
                            keeper.add(content)
                            yield AudioChunk(content=content)
                    match item:
                        case SpeechBegun():
                            keeper.begin(item)
                        case AudioChunk():
                            keeper.add(item.content)
                        case SpeechSummary():
                            await slowly(keeper.finish, item)
                            item = replace(item, take_problem=keeper.problem)
                    yield item

    def _sign(self, content: bytes, summary: SpeechSummary) -> tuple[bytes, SpeechSummary]:
        """A whole file with its statement, and the summary that says so."""
        facts = summary.facts
        if self.signer is None:
            return content, summary
        signed = self.signer.sign(content, facts.audio_format, facts.statement)
        is_signed = signed is not content
        return signed, replace(summary, facts=facts.model_copy(update={"is_signed": is_signed}))

    async def _speak_in_time(self, order: SynthesisRequest) -> AsyncGenerator[SynthesisEvent]:
        items = self.service.speak(order)
        try:
            while True:
                try:
                    async with asyncio.timeout(self.timeout_seconds):
                        item = await anext(items)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    raise RequestTimedOut(
                        f"Nothing was spoken for {self.timeout_seconds:.0f} s. Try again later."
                    ) from error
                # A sign of life has kept the request alive, and that was all it is for.
                if not isinstance(item, SpeechGoesOn):
                    yield item
        finally:
            await items.aclose()


def client_of(request: Request) -> str:
    """Who asks, as the access control has found out."""
    return cast(str, request.state.client)


async def context_of(request: Request) -> ApiContext:
    """The application's context as the tenant who asks may see it; the only one that routes are given."""
    state, context = request.state, cast(ApiContext, request.app.state.context)
    return context.of_tenant(state.tenant, getattr(state, "allowance", context.allowance))


ContextDep = Annotated[ApiContext, Depends(context_of)]
