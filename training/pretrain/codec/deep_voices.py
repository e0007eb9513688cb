"""Speech by deeper voices than a corpus has.

Engines have few men's voices, and hardly any speech below 95 Hz, where many men speak. What a codec never hears it does
not learn to say. So speech is played more slowly, which lowers pitch and formants, its formants are moved most of the
way back, and its pace is restored.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from training.pretrain.corpus.timbre import Timbre
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ
from training.tempo import at_tempo

PITCH_RANGE_HZ = (62.0, 105.0)
"""Of what voices are made, evenly over its logarithm."""
_STRONGEST, _WEAKEST = 0.5, 0.95
"""Factors of the pitch: with more, little of a voice would be left; with less, nothing is gained."""
_FORMANTS_BACK = 0.8
"""Share of the way, in logarithms: deeper voices have longer tracts."""


def deepened(
    speech: NDArray[np.float32], pitch_hz: float | None, random: np.random.Generator
) -> NDArray[np.float32] | None:
    """Speech (samples,) of a known median pitch by a deep voice, as long and as loud; None if it cannot be made deep.

    Args:
        speech: at the corpus's sample rate.
        pitch_hz: its median; None if nothing in it is voiced.
        random: decides how deep.
    """
    low, high = PITCH_RANGE_HZ
    wanted_hz = math.exp(random.uniform(math.log(low), math.log(high)))
    if pitch_hz is None or not _STRONGEST <= (factor := wanted_hz / pitch_hz) <= _WEAKEST:
        return None
    slow = resampled(speech, int(len(speech) / factor))
    moved = Timbre.scaled(factor**-_FORMANTS_BACK).applied(slow)
    changed = at_tempo(moved, len(slow) / len(speech), SAMPLE_RATE_HZ)
    changed = np.pad(changed, (0, max(0, len(speech) - len(changed))))[: len(speech)]
    level = math.sqrt(float(np.square(speech).mean()) / max(float(np.square(changed).mean()), 1e-12))
    loud: NDArray[np.float32] = np.clip(changed * level, -1, 1).astype(np.float32)
    return loud


def resampled(speech: NDArray[np.float32], num_samples: int) -> NDArray[np.float32]:
    """Band-limited interpolation to another number of samples."""
    spectrum = np.fft.rfft(speech)
    found = np.fft.irfft(spectrum[: num_samples // 2 + 1], num_samples) * (num_samples / len(speech))
    return np.clip(found, -1, 1).astype(np.float32)
