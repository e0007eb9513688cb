"""One trace leads from the request to the last byte; without its variables, or its packages, there is none."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from backend.serving.api.factory import create_api
from backend.serving.api.tracing import SpeechTracing, install_tracing, is_tracing_wanted, open_tracing
from tests.backend.serving.api.served import ask, client_of

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
STAGES = ["queue wait", "prefill", "first frame", "frames", "codec"]


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def traced(context, exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = create_api(replace(context, tracing=SpeechTracing(provider)))
    install_tracing(app, provider)
    return client_of(app)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_speech_is_one_trace_from_the_request_to_the_last_byte(traced, exporter, stream):
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    heard = traced.post("/v1/audio/speech", json=ask(input="Hi. Ho.", stream=stream), headers=headers)
    assert heard.status_code == 200
    spans = exporter.get_finished_spans()
    assert {format(span.context.trace_id, "032x") for span in spans} == {TRACE}
    by_name = {span.name: span for span in spans}
    request, speech, segment = by_name["POST /v1/audio/speech"], by_name["speech"], by_name["segment"]
    assert format(request.parent.span_id, "016x") == PARENT
    assert speech.parent.span_id == request.context.span_id
    segments = [span for span in spans if span.name == "segment"]
    assert {span.parent.span_id for span in segments} == {speech.context.span_id}
    stages = [span for span in spans if span.parent.span_id == segment.context.span_id]
    assert [span.name for span in sorted(stages, key=lambda span: STAGES.index(span.name))] == STAGES
    # What lies within another is not longer; clocks of one machine agree to far less than this.
    for inner, outer in [(speech, request), *((one, speech) for one in segments), *((one, segment) for one in stages)]:
        assert outer.start_time - 10**6 <= inner.start_time <= inner.end_time <= outer.end_time + 10**6
    times = [(by_name[name].start_time, by_name[name].end_time) for name in STAGES]
    assert times == sorted(times)
    assert segment.attributes["encore.frames"] > 0
    # Neither what is said nor by whom.
    assert not any(word in span.to_json() for span in spans for word in ("Hi. Ho.", "Anna"))


def test_a_speech_that_fails_says_so_and_probes_leave_no_trace(traced, exporter):
    assert traced.post("/v1/audio/speech", json=ask(language="klingon")).status_code == 400
    (speech,) = (span for span in exporter.get_finished_spans() if span.name == "speech")
    assert speech.status.status_code is StatusCode.ERROR
    exporter.clear()
    assert traced.get("/v1/audio/voices/Anna").status_code == 200
    (named,) = exporter.get_finished_spans()
    assert named.name == "GET /v1/audio/voices"
    assert "Anna" not in named.to_json()
    exporter.clear()
    assert traced.get("/healthz").status_code == traced.get("/metrics").status_code == 200
    assert exporter.get_finished_spans() == ()


def test_what_is_left_is_sent_when_the_server_ends(context, exporter):
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=10**6))
    app = create_api(context)
    install_tracing(app, provider)
    with client_of(app) as client:
        client.get("/v1/models")
    assert [span.name for span in exporter.get_finished_spans()] == ["GET /v1/models"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_traces_are_made_where_opentelemetrys_variables_ask_for_them(environment, expected):
    assert is_tracing_wanted(environment) == expected
    if not expected:
        assert open_tracing(environment) is None


@pytest.mark.parametrize(
    "missing", ["opentelemetry.instrumentation.asgi", "opentelemetry.exporter.otlp.proto.http.trace_exporter"]
)
def test_a_missing_package_is_said_in_one_line_and_speech_goes_on(monkeypatch, caplog, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert open_tracing(ENDPOINT) is None
    (record,) = caplog.records
    assert "requirements-tracing.txt" in record.getMessage()
    assert missing in record.getMessage()
