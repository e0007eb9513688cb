"""Sound with what measures of speech look at: syllables, pauses, formants that move, consonants up to 11 kHz."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE = 24_000


def speechlike(seed: int, seconds: float = 4.0) -> NDArray[np.float32]:
    """Syllables that differ with the seed; float32 (samples,), peak below 0.5."""
    generator = np.random.default_rng(seed)
    total = round(seconds * RATE)
    sound = np.zeros(total)
    position = 0
    while position < total:
        length = min(int(generator.uniform(0.12, 0.3) * RATE), total - position)
        window = np.hanning(length)
        pitch_hz = generator.uniform(90, 220)
        times = np.arange(length) / RATE
        formant_hz = generator.uniform(300, 3_000)
        for harmonic in range(1, 30):
            gain = np.exp(-(((harmonic * pitch_hz - formant_hz) / 600) ** 2)) + 0.05
            sound[position : position + length] += window * gain * np.sin(2 * np.pi * harmonic * pitch_hz * times) * 0.1
        hiss = generator.normal(size=length) * window * 0.01
        sound[position : position + length] += hiss
        position += length + int(generator.uniform(0.02, 0.2) * RATE)
    return (sound / max(1.0, 2.1 * np.abs(sound).max())).astype(np.float32)
