"""What a proxy of Ray's says when the process behind it is lost, or it has words of its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from backend.serving.deploy.proxy import LossTeller

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
PIECE = {"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True}
LAST = {"type": "http.response.body", "body": b"", "more_body": False}


def told(*messages: dict[str, Any], path: str = "/v1/audio/speech", fails: bool = False) -> list[dict[str, Any]]:
    """What reaches the client of a proxy that sends these and ends."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async def proxy(_scope: Any, _receive: Any, pass_on: Any) -> None:
        for message in messages:
            await pass_on(message)
        if fails:
            raise ConnectionError

    asyncio.run(LossTeller(proxy)({"type": "http", "path": path, "headers": []}, receive, send))
    return sent


def error_in(content: bytes) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(content)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@pytest.mark.parametrize("fails", [False, True])
def test_without_an_answer_there_is_one_that_says_so(fails: bool) -> None:
    start, body = told(fails=fails)
    assert start["status"] == 503
    assert error_in(body["body"])["code"] == "unavailable"


def test_events_that_break_off_end_with_an_error() -> None:
    sent = told(START, PIECE)
    assert sent[:2] == [START, PIECE]
    assert sent[2]["more_body"] is False
    event = json.loads(sent[2]["body"].removeprefix(b"data: "))
    assert event["type"] == "speech.audio.error"
    assert event["error"]["code"] == "unavailable"


def test_sound_that_breaks_off_is_not_ended() -> None:
    start = START | {"headers": [(b"content-type", b"audio/pcm")]}
    assert told(start, PIECE) == [start, PIECE]


@pytest.mark.parametrize(("status", "given"), [(503, 503), (404, 503), (408, 503), (500, 503), (429, 429)])
def test_plain_words_become_an_error_of_the_api(status: int, given: int) -> None:
    plain = [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", b"2")]
    start, body = told(
        {"type": "http.response.start", "status": status, "headers": plain}, LAST | {"body": b"The deployment is gone"}
    )
    assert start["status"] == given
    assert "deployment" not in error_in(body["body"])["message"]
    assert ((b"retry-after", b"2") in start["headers"]) == (status == 429)


def test_another_application_says_what_it_likes() -> None:
    plain = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"0")]
    error = {"type": "http.response.start", "status": 404, "headers": plain}
    assert told(error, LAST) == [error, LAST]


def test_whole_answers_and_health_checks_pass_unchanged() -> None:
    error = START | {"status": 404, "headers": [(b"content-type", b"application/json")]}
    assert told(error, LAST) == [error, LAST]
    assert told(START, PIECE, LAST) == [START, PIECE, LAST]
    plain = START | {"status": 503, "headers": [(b"content-type", b"text/plain")]}
    assert told(plain, LAST, path="/-/healthz") == [plain, LAST]
