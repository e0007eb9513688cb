"""A speech that fails after its first sound: clients notice, and the log has one line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import httpx
import pytest

from backend.serving.api.factory import create_api
from backend.serving.deploy.local_server import server_of
from tests.backend.serving.api.served import ask, wait_until


@pytest.fixture
def address(context, monkeypatch, capfd) -> Iterator[str]:
    """The address of a server whose takes all end too early for their texts."""
    monkeypatch.setattr("backend.serving.speech.audio_stream.TOO_SHORT_SHARE", 1000.0)
    server = server_of(create_api(context))
    server.config.port = 0
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server listens")
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1/audio/speech"
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("form", ["wav", "pcm", "mp3"])
def test_sound_that_ends_too_early_breaks_the_connection_with_one_line_in_the_log(address, form, caplog, capfd):
    """Each was logged as a fault of the application, twice, with a hundred lines of traceback."""
    received: list[bytes] = []
    with httpx.stream("POST", address, json=ask(response_format=form), timeout=90) as response:
        assert response.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            received.extend(response.iter_raw())
    assert b"".join(received)
    wait_until(lambda: bool(caplog.messages), "it is logged")
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("WARNING", None)]
    assert caplog.messages[0].startswith("a speech broke off: Too short (")
    assert capfd.readouterr() == ("", "")


def test_events_end_with_the_error(address, caplog):
    response = httpx.post(address, json=ask(stream_format="sse"), timeout=90)
    events = [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line]
    assert events[0]["type"] == "speech.audio.delta"
    assert events[-1]["type"] == "speech.audio.error"
    assert events[-1]["error"]["code"] == "take_too_short"
    assert len(caplog.messages) == 1


def test_a_take_that_fails_before_its_first_sound_has_an_error_status(address):
    response = httpx.post(address, json=ask(stream=False), timeout=90)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "take_too_short"
