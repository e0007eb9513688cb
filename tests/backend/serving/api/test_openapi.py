"""The OpenAPI document is true: what it describes is accepted or refused as it says, and never a fault."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NUM_EXAMPLES = 8


@pytest.fixture(scope="module")
def schema(app):
    return schemathesis.openapi.from_asgi("/openapi.json", app, headers={"host": "127.0.0.1"})


OPERATIONS = [
    ("/v1/audio/speech", "POST"),
    ("/v1/audio/voices", "GET"),
    ("/v1/audio/voices", "POST"),
    ("/v1/audio/voices/{voice_id}", "GET"),
    ("/v1/audio/voices/{voice_id}", "DELETE"),
    ("/v1/audio/voices/{voice_id}/restore", "POST"),
    ("/v1/audio/takes", "GET"),
    ("/v1/audio/takes/{take_id}", "GET"),
    ("/v1/audio/takes/{take_id}", "DELETE"),
    ("/v1/audio/takes/{take_id}/content", "GET"),
    ("/v1/audio/takes/{take_id}/restore", "POST"),
    ("/v1/compare", "POST"),
    ("/v1/audio/check", "GET"),
    ("/v1/audio/check", "POST"),
    ("/v1/models", "GET"),
    ("/healthz", "GET"),
    ("/metrics", "GET"),
]


def test_every_operation_is_tried(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {(path, method.upper()) for path, methods in paths.items() for method in methods} == set(OPERATIONS)


@pytest.mark.parametrize("path", ["/v1/audio/voices/{voice_id}", "/v1/audio/takes/{take_id}"])
def test_a_flag_that_is_no_flag_is_a_documented_refusal(client, path):
    answer = client.delete(path.partition("{")[0] + "any?for_good=perhaps")
    assert answer.status_code == 400
    assert str(answer.status_code) in client.get("/openapi.json").json()["paths"][path]["delete"]["responses"]


def test_the_api_description_lists_only_answers_that_are_sent(client):
    document = client.get("/openapi.json").json()
    for operations in document["paths"].values():
        for operation in operations.values():
            assert "422" not in operation["responses"]
            assert {"403", "500"} <= set(operation["responses"])


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_answers_are_as_described(schema, path, method, voices):
    before = voices.list()
    operation = schema[path][method]
    # As described, and off it.
    cases = st.one_of(
        operation.as_strategy(), operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
    )
    host = {"host": "127.0.0.1"}

    @settings(
        max_examples=NUM_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def check(case):
        case.call_and_validate(headers={**(case.headers or {}), **host}, checks=CHECKS)

    check()
    assert voices.list() == before
