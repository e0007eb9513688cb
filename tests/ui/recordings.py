"""Recordings for the page: something with the rhythm of speech, and files that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.audio.writing import write_wav
from tests.backend.audio.sounds import sing

RATE = 24_000


def speak_like(seconds: float, *, level: float = 1.0, noise: float = 2e-4, rate: int = RATE) -> NDArray[np.float32]:
    """Bursts of voice with pauses between them, `level` times 0.3 at their loudest, over white noise."""
    time = np.arange(round(seconds * rate)) / rate
    syllables = np.sin(2 * np.pi * 2.5 * time) > -0.3
    hiss = np.random.default_rng(0).normal(0.0, noise, len(time))
    return (level * sing(seconds, rate) * syllables + hiss).astype(np.float32)


def write_voice(path: Path, seconds: float = 4.0) -> Path:
    """A good recording as a WAV file."""
    write_wav(path, speak_like(seconds), RATE)
    return path


def write_broken(path: Path) -> Path:
    """Bytes that begin like a WAV file and are none."""
    path.write_bytes(b"RIFF" + bytes(100))
    return path
