"""`serve --local` as a person starts it: it answers, speaks, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from backend.store.home import Home
from backend.voices.consent import Consent
from backend.voices.registry import Voices
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice

PROJECT = Path(__file__).parents[3]
DEADLINE_SECONDS = 480.0


@pytest.fixture
def served(tmp_path):
    """The process, and a client that has its key."""
    home = tmp_path / "home"
    recording = write_voice(tmp_path / "anna.wav", seconds=1.2)
    Voices(Home(home)).create_zero_shot("Anna", recording, consent=Consent.give("Anna"), model="tiny")
    command = [sys.executable, "app.py", "serve", "--local", "--port", "0", "--voice", "anna", "--num-slots", "2"]
    options = ["--model", str(GOLDEN_CHECKPOINT), "--precision", "fp32", "--device", "cpu"]
    environment = {**os.environ, "ENCORE_HOME": str(home), "ENCORE_API_KEYS": "first,second"}
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
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_SECONDS) in (0, 130)
