"""`serve --local` as a person starts it: it answers, speaks, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from backend.store.home import Home
from backend.voices.consent import Consent
from backend.voices.registry import Voices
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.raw_http import connect, read_reply, request
from tests.ui.recordings import write_voice

PROJECT = Path(__file__).parents[3]
DEADLINE_SECONDS = 480.0
NUM_SLOTS = 2
LONG = "One two three four five six seven eight nine ten eleven twelve. " * 60
"""Minutes of speech."""


@pytest.fixture
def served(tmp_path):
    """The process, and a client that has its key."""
    home = tmp_path / "home"
    recording = write_voice(tmp_path / "anna.wav", seconds=1.2)
    Voices(Home(home)).create_zero_shot("Anna", recording, consent=Consent.give("Anna"), model="tiny")
    command = [sys.executable, "app.py", "serve", "--local", "--port", "0", "--voice", "anna"]
    options = ["--model", str(GOLDEN_CHECKPOINT), "--precision", "fp32", "--device", "cpu"]
    options += ["--num-slots", str(NUM_SLOTS)]
    environment = {**os.environ, "ENCORE_HOME": str(home), "ENCORE_API_KEYS": "first,second"}
    environment |= {"ENCORE_TRUSTED_PROXIES": "127.0.0.1"}
    process = subprocess.Popen([*command, *options], cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True)
    # A process that hangs is ended, and with it the wait for its first line.
    watchdog = threading.Timer(DEADLINE_SECONDS, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline()
        assert line.startswith("Speech API: http://127.0.0.1:"), line
        address = line.split()[2].removesuffix("/v1")
        headers = {"authorization": "Bearer second"}
        # The line is there before the server is, but the port is taken and keeps whoever comes waiting.
        with httpx.Client(base_url=address, headers=headers, timeout=DEADLINE_SECONDS) as client:
            yield process, client
    finally:
        process.kill()
        process.wait()
        watchdog.cancel()
        process.stdout.close()


def test_it_answers_speaks_and_ends(served):
    process, client = served
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/v1/models", headers={"authorization": "Bearer third"}).status_code == 401
    speech = client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "Anna", "response_format": "flac"})
    assert speech.status_code == 200, speech.text
    assert speech.content.startswith(b"fLaC")
    check_what_its_model_is_called(client)
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_SECONDS) in (0, 130)


def check_what_its_model_is_called(client: httpx.Client) -> None:
    """By its folder's name, everywhere, and the answer to another name says one that works."""
    asked = {"input": "Hi.", "voice": "Anna", "response_format": "wav"}
    (model,) = (one["id"] for one in client.get("/v1/models").json()["data"])
    assert model == GOLDEN_CHECKPOINT.name == client.get("/healthz").json()["model"]
    speech = client.post("/v1/audio/speech", json={**asked, "model": model})
    assert speech.status_code == 200, speech.text
    assert {take["model"] for take in client.get("/v1/audio/takes").json()["data"]} == {model}
    refused = client.post("/v1/audio/speech", json={**asked, "model": "tts-1"})
    assert refused.status_code == 404
    assert f"not served here; {model!r} is." in refused.json()["error"]["message"]
    # As clients of earlier versions do, which were told the folder.
    assert client.post("/v1/audio/speech", json={**asked, "model": str(GOLDEN_CHECKPOINT)}).status_code == 200


def test_the_api_withstands_guessing_slow_and_flooding_clients(served):
    _, client = served
    # Both of them wait for the server to be there.
    assert client.get("/healthz").status_code == 200
    address = str(client.base_url)
    with ExitStack() as stack:
        half = stack.enter_context(connect(address))
        half.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nContent-Le")
        check_guessing_is_slowed(client)
        check_impossible_names_are_refused(address)
        check_a_crowd_keeps_nobody_out(served, stack)
        half.settimeout(DEADLINE_SECONDS)
        assert read_reply(half).status == 408


def check_guessing_is_slowed(client: httpx.Client) -> None:
    guess = {"authorization": "Bearer wrong", "x-forwarded-for": "203.0.113.7"}
    statuses = Counter(client.get("/v1/models", headers=guess).status_code for _ in range(40))
    assert set(statuses) == {401, 429}
    assert statuses[401] < 10
    assert client.get("/v1/models", headers={**guess, "authorization": "Bearer first"}).status_code == 429
    assert client.get("/v1/models", headers={"x-forwarded-for": "198.51.100.9"}).status_code == 200


def check_impossible_names_are_refused(address: str) -> None:
    for host in ("[", "a b"):
        assert request(address, "/v1/models", host=host, authorization="Bearer first").status == 400
    assert request(address, "/v1/models", origin="[", authorization="Bearer first").status == 400


def check_a_crowd_keeps_nobody_out(served: tuple[subprocess.Popen[str], httpx.Client], stack: ExitStack) -> None:
    """One key asks for 45 long takes; another key's short one does not wait for them."""
    process, client = served
    body = {"input": LONG, "voice": "Anna", "response_format": "pcm"}
    crowd_key = {"authorization": "Bearer first"}
    options = {"timeout": DEADLINE_SECONDS, "limits": httpx.Limits(max_connections=50)}
    crowd = stack.enter_context(httpx.Client(base_url=client.base_url, **options))
    pool = stack.enter_context(ThreadPoolExecutor(45))
    # The rest of the crowd need not be waited for, whatever was found.
    stack.callback(process.kill)

    def begin(_: int) -> httpx.Response:
        reply = crowd.send(crowd.build_request("POST", "/v1/audio/speech", json=body, headers=crowd_key), stream=True)
        stack.callback(reply.close)
        return reply

    asked = [pool.submit(begin, number) for number in range(45)]
    # All places are theirs once one of them is refused.
    refused = next(reply for reply in map(Future.result, as_completed(asked)) if reply.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    waiting = [one for one in asked if not one.done()]
    assert len(waiting) > 10
    late = client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "Anna"})
    assert late.status_code == 200, late.text
    # The model's weights are random: a take may be over at once, and the next of the crowd begins beside the late one.
    # Behind all of them, it would have been answered when hardly any was left.
    assert sum(not one.done() for one in waiting) > NUM_SLOTS, "it waited behind the crowd"
