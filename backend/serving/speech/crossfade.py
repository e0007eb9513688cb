"""Segments of a text joined without clicks where they meet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CROSSFADE_SECONDS = 0.01
"""How much of a segment's end overlaps the beginning of the next."""

EDGE_SECONDS = 0.005
"""Fade at the very beginning and end."""


class Crossfader:
    """Passes chunks on as they come, holding back the end of a segment until the next one is there."""

    def __init__(self, sample_rate: int) -> None:
        self._overlap, self._edge = round(CROSSFADE_SECONDS * sample_rate), round(EDGE_SECONDS * sample_rate)
        self._kept = np.zeros(0, dtype=np.float32)
        self._ending: NDArray[np.float32] | None = None
        self._has_begun = False

    @property
    def num_held(self) -> int:
        """Samples of the end of a segment that wait for the next one."""
        return len(self._ending) if self._ending is not None else 0

    def add(self, chunk: NDArray[np.float32]) -> NDArray[np.float32]:
        """Add the next chunk of the current segment; returns what can be played now."""
        samples = np.concatenate((self._kept, chunk))
        if len(samples) < 2 * self._overlap:
            self._kept = samples
            return np.zeros(0, dtype=np.float32)
        if self._ending is not None:
            samples = crossfade(self._ending, samples)
            self._ending = None
        elif not self._has_begun:
            samples[: self._edge] *= np.linspace(0.0, 1.0, self._edge, dtype=np.float32)
        self._has_begun = True
        self._kept = samples[len(samples) - self._overlap :]
        return samples[: len(samples) - self._overlap]

    def end_segment(self) -> NDArray[np.float32]:
        """End the current segment; returns what can be played now."""
        if self._ending is None:
            self._ending, self._kept = self._kept, np.zeros(0, dtype=np.float32)
            return np.zeros(0, dtype=np.float32)
        # A segment too short to fade into is appended to the one before it.
        samples = np.concatenate((self._ending, self._kept))
        cut = max(0, len(samples) - self._overlap)
        self._ending, self._kept = samples[cut:], np.zeros(0, dtype=np.float32)
        return samples[:cut]

    def finish(self) -> NDArray[np.float32]:
        """Return what was held back, faded out."""
        ending = self._ending if self._ending is not None else np.zeros(0, dtype=np.float32)
        samples = np.concatenate((ending, self._kept))
        length = min(self._edge, len(samples))
        if length:
            samples[len(samples) - length :] *= np.linspace(1.0, 0.0, length, dtype=np.float32)
        self._ending, self._kept = None, np.zeros(0, dtype=np.float32)
        return samples


def splice(
    whole: NDArray[np.float32], start: int, end: int, part: NDArray[np.float32], sample_rate: int
) -> NDArray[np.float32]:
    """A whole (samples,) in which a part stands in place of what was between two samples.

    The seams are those of the stream, where there is something on the other side; all else stays as it is, bit by bit.
    """
    overlap = min(round(CROSSFADE_SECONDS * sample_rate), len(part) // 2)
    before, after = whole[:start], whole[end:]
    if start and overlap:
        part = crossfade(whole[start : start + overlap], part)
    if len(after) and overlap:
        part = np.concatenate((part[:-overlap], crossfade(part[-overlap:], whole[end - overlap : end])))
    return np.concatenate((before, part, after))


def crossfade(ending: NDArray[np.float32], beginning: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fade from the end of one segment into the beginning of another; linear, because both are close to silence."""
    length = len(ending)
    ramp = np.linspace(0.0, 1.0, length, dtype=np.float32)
    joined = beginning.copy()
    joined[:length] = ending * (1 - ramp) + beginning[:length] * ramp
    return joined
