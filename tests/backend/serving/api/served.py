"""What the API's tests share: a model, a text short enough for random weights, and how to ask."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from backend.serving.engine.engine import Engine
from backend.voices.consent import Consent

MODEL = "tiny"
CONSENT = Consent.give("Anna Example")
TEXT = "Hi."
"""Random weights may never end by themselves, and a take's cap follows from its text."""

DEADLINE_SECONDS = 90.0
MAX_ROUNDING = 8
"""Of 32767; another take differs by thousands."""


def load(folder: Path) -> Engine:
    return Engine.load(folder, precision="fp32", device="cpu", num_slots=4, cache_length=512, max_waiting=4)


def client_of(app, **options) -> TestClient:
    """A client that calls the application directly, as a program on this machine."""
    return TestClient(app, base_url="http://127.0.0.1", **options)


def ask(**fields) -> dict[str, object]:
    """A request for speech whose sound is decided."""
    return {"model": MODEL, "input": TEXT, "voice": "Anna", "seed": 1, "response_format": "pcm", **fields}


def wav_samples(content: bytes) -> bytes:
    """The PCM16 samples of a WAV, streamed or whole; before or after them it says what it is."""
    begin = content.index(b"data", 36) + 8
    num_bytes = int.from_bytes(content[begin - 4 : begin], "little")
    return content[begin : begin + num_bytes]


def is_same_sound(one: bytes, other: bytes) -> bool:
    """Whether two PCM16 sounds are alike up to rounding: how many frames are decoded at once moves the last bit."""
    if len(one) != len(other):
        return False
    first, second = (np.frombuffer(content, "<i2").astype(int) for content in (one, other))
    return bool(np.abs(first - second).max(initial=0) <= MAX_ROUNDING)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not after {DEADLINE_SECONDS} s: {what}"
        time.sleep(0.02)
