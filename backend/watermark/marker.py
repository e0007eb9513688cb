"""Puts the mark into sound while it is made."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from backend.watermark.pattern import (
    BAND_HZ,
    LOWEST_HZ,
    NUM_BANDS,
    PERIOD_STEPS,
    STEP_SECONDS,
    STEPS_PER_COLUMN,
    signs_of,
)

STRENGTH_DB = 1.0
"""By how much a tile becomes louder or softer where the ear tells apart what is as narrow as a tile."""

_MOST_STRENGTH = 2.0
"""Times that at high frequencies: there the ear hears several tiles as one, and what they add and take cancels."""


class Marker:
    """Marks a stream of sound, 20 ms behind it; how it is cut into chunks has no influence on the result.

    marker = Marker(24_000, installation_key=key, payload=1234)
    for chunk in stream:
        yield marker.add(chunk)
    yield marker.finish()
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        installation_key: bytes | None = None,
        payload: int = 0,
        strength_db: float = STRENGTH_DB,
    ) -> None:
        """Begin a stream.

        Args:
            sample_rate: in Hz.
            installation_key: whose payload is written beside the public mark; None writes the latter alone.
            payload: a number of 16 bits.
            strength_db: by how much a tile of a low frequency becomes louder or softer.
        """
        self._step = round(sample_rate * STEP_SECONDS)
        # Its square adds up to one with itself half a window later.
        self._window = np.sin(np.pi * (np.arange(2 * self._step) + 0.5) / (2 * self._step))
        self._gains = _gains(signs_of(installation_key, payload), self._step, sample_rate, strength_db)
        self._waiting = np.zeros(self._step)
        self._overlap: NDArray[np.float64] | None = None
        self._num_windows = 0
        self._num_left = 0

    def add(self, chunk: NDArray[np.floating]) -> NDArray[np.float32]:
        """Mark what can be marked so far; may be empty."""
        self._num_left += len(chunk)
        return self._mark(chunk.astype(np.float64))

    def finish(self) -> NDArray[np.float32]:
        """The rest."""
        num_left = self._num_left
        return self._mark(np.zeros(2 * self._step))[:num_left]

    def _mark(self, samples: NDArray[np.float64]) -> NDArray[np.float32]:
        samples = np.concatenate((self._waiting, samples))
        step = self._step
        count = len(samples) // step - 1
        if count < 1:
            self._waiting = samples
            return np.zeros(0, dtype=np.float32)
        self._waiting = samples[count * step :]
        windows = np.lib.stride_tricks.sliding_window_view(samples, 2 * step)[::step][:count]
        gains = self._gains[(self._num_windows + np.arange(count)) % PERIOD_STEPS]
        marked = np.fft.irfft(np.fft.rfft(windows * self._window) * gains, n=2 * step) * self._window
        self._num_windows += count
        ends = marked[:, step:]
        # The very first half window lies before the beginning.
        before = self._overlap if self._overlap is not None else np.zeros((0, step))
        pieces = np.concatenate((before, ends[: count - 1])) + marked[1 - len(before) :, :step]
        self._overlap = ends[count - 1 :]
        self._num_left -= pieces.size
        return pieces.reshape(-1).astype(np.float32)


def _gains(signs: NDArray[np.float64], step: int, sample_rate: int, strength_db: float) -> NDArray[np.float64]:
    """(steps of a period, bins of the marker's spectrum)."""
    centres = LOWEST_HZ + BAND_HZ * (np.arange(NUM_BANDS) + 0.5)
    # Width of the ear's filters in Hz (Glasberg and Moore, 1990).
    widths = 24.7 * (1 + 0.00437 * centres)
    decibels = signs * strength_db * np.clip(np.sqrt(widths / BAND_HZ), 1, _MOST_STRENGTH)
    frequencies = np.arange(step + 1) * sample_rate / (2 * step)
    bands = np.floor((frequencies - LOWEST_HZ) / BAND_HZ).astype(int)
    is_inside = (bands >= 0) & (bands < NUM_BANDS)
    of_bins = np.where(is_inside, decibels[:, np.clip(bands, 0, NUM_BANDS - 1)], 0.0)
    gains: NDArray[np.float64] = 10 ** (np.repeat(of_bins, STEPS_PER_COLUMN, axis=0) / 20)
    return gains
