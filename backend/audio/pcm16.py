"""16-bit samples: how they are made of floats, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Symmetric, so that +1.0 and -1.0 are equally loud; -32768 stays unused.
FULL_SCALE = 32767.0


def to_pcm16(samples: NDArray[np.floating[Any]]) -> NDArray[np.int16]:
    """Little-endian 16-bit integers of float samples, clipped to [-1, 1]; any shape."""
    integers: NDArray[np.int16] = np.rint(np.clip(samples, -1.0, 1.0) * FULL_SCALE).astype("<i2")
    return integers


def from_pcm16(integers: NDArray[np.int16]) -> NDArray[np.float32]:
    """The floats that `to_pcm16` gives the same integers for."""
    return (integers / np.float32(FULL_SCALE)).astype(np.float32)
