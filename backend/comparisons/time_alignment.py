"""Which moments of two takes belong together: to switch between them within a word."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from backend.transcription.dtw import warp_times

NUM_MOMENTS = 41
"""Marks along a take; between two of them the pace is taken to be even."""

_MAX_FRAMES = 400
"""Of a take: enough for a mark every fiftieth of a second up to eight seconds, and little to compute for a minute."""

_FRAMES_PER_SECOND = 50.0
_WINDOW_SECONDS = 0.04
_NUM_BANDS = 20
_MAX_HZ = 5_000.0
_FLOOR_DB = -60.0


def aligned_times(takes: Sequence[tuple[NDArray[np.float32], int]]) -> list[list[float]]:
    """Seconds at which each take says the same: the marks of one number belong together.

    Args:
        takes: samples (samples,) and sample rate of each; all say the same text.

    Returns:
        for each take its marks, from its beginning to its end, never falling.
    """
    first_samples, first_rate = takes[0]
    marks = np.linspace(0.0, len(first_samples) / first_rate, NUM_MOMENTS)
    first = _spectrum(first_samples, first_rate)
    return [list(marks), *(_marks_in(samples, rate, first, marks) for samples, rate in takes[1:])]


def _marks_in(
    samples: NDArray[np.float32], rate: int, first: NDArray[np.float64], marks: NDArray[np.float64]
) -> list[float]:
    seconds = len(samples) / rate
    if not len(samples) or marks[-1] <= 0.0:
        return list(np.linspace(0.0, seconds, NUM_MOMENTS))
    other = _spectrum(samples, rate)
    distances = np.abs(first[:, None, :] - other[None, :, :]).mean(axis=2)
    ours, theirs = warp_times(torch.from_numpy(distances))
    # A moment of the first may last for several of the other: the middle of these.
    places = np.array([theirs[ours == number].mean() for number in range(len(first))])
    own = (np.arange(len(first)) + 0.5) * (marks[-1] / len(first))
    found = np.interp(marks, own, (places + 0.5) * (seconds / len(other)))
    found[0], found[-1] = 0.0, seconds
    return list(np.maximum.accumulate(found).astype(float))


def _spectrum(samples: NDArray[np.float32], rate: int) -> NDArray[np.float64]:
    """Levels (frames, bands) between 0 and 1, each band against its own mean: what is said more than who says it."""
    num_frames = int(np.clip(len(samples) / rate * _FRAMES_PER_SECOND, 2, _MAX_FRAMES))
    window = round(_WINDOW_SECONDS * rate)
    padded = np.pad(samples.astype(np.float64), (window // 2, window))
    starts = np.linspace(0, max(0, len(samples) - 1), num_frames).astype(np.intp)
    frames = padded[starts[:, None] + np.arange(window)] * np.hanning(window)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    highest = min(_MAX_HZ, rate / 2)
    # Narrower bands below, as ears have them.
    edges = highest * (np.expm1(np.linspace(0.0, 3.0, _NUM_BANDS + 1)) / np.expm1(3.0))
    bins = np.ceil(edges * window / rate).astype(np.intp)
    bins = np.maximum(bins, np.arange(_NUM_BANDS + 1))
    bands = np.stack([power[:, low : max(high, low + 1)].mean(axis=1) for low, high in pairwise(bins)])
    loudest = max(float(bands.max()), 1e-12)
    levels = np.clip(10.0 * np.log10(np.maximum(bands / loudest, 1e-12)) / -_FLOOR_DB + 1.0, 0.0, 1.0).T
    return np.asarray(levels - 0.5 * levels.mean(axis=0, keepdims=True), np.float64)
