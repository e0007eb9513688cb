"""Long recordings in pieces that a listener can hear at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from backend.transcription.transcriber import TRANSCRIBER_HZ

# The moment at which a piece that is too long is cut is looked for in its last part, by the level of such windows.
_SEARCHED_SHARE = 0.5
_QUIET_WINDOW_SECONDS = 0.1


def split_at_quiet_moments(samples: NDArray[np.float32], piece_seconds: float) -> Iterator[NDArray[np.float32]]:
    """Cut samples (samples,) at 16 kHz into pieces that are no longer, at the quietest moment of the last half."""
    longest = int(piece_seconds * TRANSCRIBER_HZ)
    window = int(_QUIET_WINDOW_SECONDS * TRANSCRIBER_HZ)
    while len(samples) > longest:
        begin = int(longest * (1 - _SEARCHED_SHARE))
        energy = np.convolve(np.square(samples[begin:longest], dtype=np.float64), np.ones(window), mode="valid")
        cut = begin + int(np.argmin(energy)) + window // 2
        yield samples[:cut]
        samples = samples[cut:]
    yield samples
