"""An engine on the tiny checkpoint, and requests for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from backend.serving.engine.engine import Engine
from backend.serving.engine.take_stream import TakeStream
from backend.watermark.mark import Mark
from tests.golden import GOLDEN_CHECKPOINT
from tests.single_take import Take
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.voice_model import VoiceModel

NUM_SLOTS = 4
UNMARKED = Mark(off_because="the samples are compared with those of the network")
DEADLINE_SECONDS = 120.0


@pytest.fixture(scope="session")
def tiny_model() -> VoiceModel:
    """Loaded once; engines on it must not consume it."""
    return VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")


@pytest.fixture(scope="session")
def new_engine(tiny_model: VoiceModel) -> Callable[..., Engine]:
    def make(num_slots: int = NUM_SLOTS, **settings: int) -> Engine:
        # Its samples are compared with the network's own; tests/backend/watermark listens to engines that mark.
        return Engine(tiny_model, num_slots=num_slots, cache_length=600, consume=False, mark=UNMARKED, **settings)

    return make


@pytest.fixture(scope="module")
def engine(new_engine: Callable[..., Engine]) -> Iterator[Engine]:
    with new_engine(max_waiting=100) as made:
        yield made


@pytest.fixture(scope="session")
def voice(tiny_model: VoiceModel) -> VoicePrompt:
    generator = torch.Generator().manual_seed(7)
    return VoicePrompt(speaker=torch.randn(tiny_model.config.talker.hidden_size, generator=generator) * 0.1)


@pytest.fixture(scope="session")
def in_context_voice(voice: VoicePrompt) -> VoicePrompt:
    codes = torch.randint(0, 64, (150, 16), generator=torch.Generator().manual_seed(1))
    return VoicePrompt(speaker=voice.speaker, reference_codes=codes, reference_text="What it says.")


@pytest.fixture
def request_of(voice: VoicePrompt) -> TakeRequest:
    return TakeRequest(text="Hello there.", voice=voice, seed=5, max_frames=12)


class Gate:
    """Holds an engine's thread where it asks whether a take is wanted, until it is opened."""

    def __init__(self) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()

    def __call__(self) -> bool:
        self._reached.set()
        assert self._opened.wait(DEADLINE_SECONDS)
        return False

    def wait_until_reached(self) -> None:
        assert self._reached.wait(DEADLINE_SECONDS)

    def open(self) -> None:
        self._opened.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


def codes_of(stream: TakeStream) -> torch.Tensor:
    """Codes (frames, codebooks) made so far."""
    return torch.stack(stream.codes) if stream.codes else torch.zeros(0, 16, dtype=torch.long)


def take_of(stream: TakeStream) -> Take:
    """Wait for a whole take."""
    chunks = list(stream)
    assert stream.finish_reason is not None
    return Take(
        waveform=np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.float32),
        codes=codes_of(stream),
        sample_rate=stream.sample_rate,
        seed=stream.seed,
        finish_reason=stream.finish_reason,
        seconds_to_first_audio=stream.seconds_to_first_audio,
        wall_seconds=0.0,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once something is true; fail if it never is."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.005)
