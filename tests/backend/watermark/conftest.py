"""Speech to mark: the recordings that come with the program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from backend.audio.resample import resample
from backend.watermark.marker import Marker
from training.model.project import PROJECT_FOLDER

SAMPLE_RATE = 24_000
KEY = bytes(range(32))
PAYLOAD = 0xBEEF


def read_voice(name: str) -> np.ndarray:
    samples, rate = soundfile.read(PROJECT_FOLDER / "assets" / "voices" / f"{name}.flac", dtype="float32")
    return resample(samples, rate, SAMPLE_RATE)


def mark(samples: np.ndarray, **changes: object) -> np.ndarray:
    marker = Marker(SAMPLE_RATE, **({"installation_key": KEY, "payload": PAYLOAD} | changes))
    return np.concatenate([marker.add(samples), marker.finish()])


@pytest.fixture(scope="session", params=["iris", "owen", "rufus"])
def speech(request) -> np.ndarray:
    """Half a minute by one of the voices."""
    return read_voice(request.param)[: 30 * SAMPLE_RATE]


@pytest.fixture
def home_folder(tmp_path) -> Path:
    return tmp_path / "home"
