"""OpenTelemetry, where an operator asks for it: one trace from the HTTP request to the last byte of its speech.

Its packages are an extra, and are imported only then.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.errors import EncoreError
from backend.serving.engine.take_timeline import TakeTimeline
from backend.serving.requests import AudioChunk, SpeechFailure, SpeechSummary, SynthesisEvent, SynthesisRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

SERVICE = "encore"
INSTALL = "python -m pip install -r requirements-tracing.txt"

_UNTRACED = "healthz,metrics"
_PATH_ATTRIBUTES = frozenset({"http.target", "http.url", "url.path", "url.full"})
_logger = logging.getLogger(__name__)


def is_tracing_wanted(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's own variables ask for traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    asking = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return any(environment.get(name) for name in asking)


def open_tracing(environment: Mapping[str, str]) -> TracerProvider | None:
    """What the variables ask for; None where they do not, or where a package is missing, which the log says."""
    if not is_tracing_wanted(environment):
        return None
    try:
        return _make_provider(environment)
    except ImportError as error:
        _logger.error("No traces are made: %s is not installed. %s installs it.", error.name, INSTALL)
        return None


def _make_provider(environment: Mapping[str, str]) -> TracerProvider:
    """Exports over OTLP (HTTP), or to the terminal. Raises ImportError."""
    # Here: an extra, see the head of this file.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter  # noqa: PLC0415

    importlib.import_module("opentelemetry.instrumentation.asgi")  # for `install_tracing`
    name = environment.get("OTEL_SERVICE_NAME") or SERVICE
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
    is_console = environment.get("OTEL_TRACES_EXPORTER") == "console"
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter() if is_console else OTLPSpanExporter()))
    return provider


def install_tracing(app: FastAPI, provider: TracerProvider) -> None:
    """Trace every request from its arrival, before it is known who sends it, and go on with the client's own trace."""
    from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware  # noqa: PLC0415 - an extra
    from opentelemetry.metrics import NoOpMeterProvider  # noqa: PLC0415 - an extra
    from opentelemetry.util.http import parse_excluded_urls  # noqa: PLC0415 - an extra

    app.add_middleware(
        OpenTelemetryMiddleware,
        tracer_provider=provider,
        # Metrics are Prometheus's, see `ApiMetrics`.
        meter_provider=NoOpMeterProvider(),
        excluded_urls=parse_excluded_urls(_UNTRACED),
        default_span_details=_name_of,
        server_request_hook=_hide_objects,
        # A span for each chunk of sound would hide the others.
        exclude_spans=["receive", "send"],
    )
    app.add_middleware(_LastSpans, provider=provider)


class _LastSpans:
    """Sends what is left when the server ends, which may end the process by a signal and without another word."""

    def __init__(self, app: ASGIApp, *, provider: TracerProvider) -> None:
        self._app, self._provider = app, provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_at_end(message: Message) -> None:
            """Before the server is told that everything is done."""
            if message["type"] == "lifespan.shutdown.complete":
                await asyncio.to_thread(self._provider.shutdown)
            await send(message)

        await self._app(scope, receive, send_at_end)


def _name_of(scope: Scope) -> tuple[str, dict[str, str]]:
    """The span of a request, by its method and what is the same in all paths of its route."""
    return f"{scope.get('method', '')} {_public_path(scope)}".strip(), {}


def _hide_objects(span: Span, scope: Scope) -> None:
    """A path ends with the name of a voice, or the id of a take, which are nobody's business but their tenant's."""
    for name in _PATH_ATTRIBUTES & set(getattr(span, "attributes", None) or {}):
        span.set_attribute(name, _public_path(scope))


def _public_path(scope: Scope) -> str:
    return "/".join(str(scope.get("path", "")).split("/")[:4])


class SpeechTracing:
    """Makes the spans of speeches within those of their requests."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer(SERVICE)

    async def follow(
        self, order: SynthesisRequest, events: AsyncGenerator[SynthesisEvent]
    ) -> AsyncGenerator[SynthesisEvent]:
        """The events as they come, within a span; neither the text nor whose voice it is are told."""
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra

        failed = functools.partial(Status, StatusCode.ERROR)
        # Not made the current one: a generator goes on in whichever context asks for its next item.
        span = self._tracer.start_span("speech", attributes=_attributes_of(order))
        has_audio = False
        try:
            async with aclosing(events) as items:
                async for item in items:
                    match item:
                        case AudioChunk() if not has_audio:
                            has_audio = True
                            span.add_event("first bytes")
                        case SpeechFailure():
                            span.set_status(failed(type(item.error).__name__))
                        case SpeechSummary():
                            span.set_attribute("encore.audio_seconds", item.facts.seconds)
                            for timeline in item.timelines:
                                self._tell(span, timeline)
                    yield item
        except EncoreError as error:
            span.set_status(failed(type(error).__name__))
            raise
        finally:
            span.end()

    def _tell(self, parent: Span, timeline: TakeTimeline) -> None:
        """One segment of the text, and what the engine did for it."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - an extra

        last = timeline.last_audio or timeline.last_frame or timeline.submitted
        segment = self._tracer.start_span(
            "segment",
            context=set_span_in_context(parent),
            start_time=_nanoseconds(timeline.submitted),
            attributes={"encore.frames": timeline.num_frames},
        )
        for name, begin, end in (
            ("queue wait", timeline.submitted, timeline.admitted),
            ("prefill", timeline.admitted, timeline.prefilled),
            ("first frame", timeline.prefilled, timeline.first_frame),
            ("frames", timeline.first_frame, timeline.last_frame),
            ("codec", timeline.first_frame, timeline.last_audio),
        ):
            if begin is not None and end is not None:
                context = set_span_in_context(segment)
                part = self._tracer.start_span(name, context=context, start_time=_nanoseconds(begin))
                part.end(_nanoseconds(end))
        segment.end(_nanoseconds(last))


def _attributes_of(order: SynthesisRequest) -> dict[str, str | int | bool]:
    return {
        "encore.characters": len(order.text),
        "encore.format": order.audio_format,
        "encore.is_streamed": order.is_streamed,
        "encore.is_fine_tuned": order.is_fine_tuned,
    }


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)
