"""16-bit samples made of floats and back, and the bytes of a WAV file of them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_UNKNOWN_LENGTH = 0xFFFFFFFF
"""What a WAV header says of a stream whose end is not known yet; players take it to mean "until it ends"."""

# Symmetric, so that +1.0 and -1.0 are equally loud; -32768 stays unused.
FULL_SCALE = 32767.0


def to_pcm16(samples: NDArray[np.floating[Any]]) -> NDArray[np.int16]:
    """Little-endian 16-bit integers of float samples, clipped to [-1, 1]; any shape."""
    integers: NDArray[np.int16] = np.rint(np.clip(samples, -1.0, 1.0) * FULL_SCALE).astype("<i2")
    return integers


def from_pcm16(integers: NDArray[np.int16]) -> NDArray[np.float32]:
    """The floats that `to_pcm16` gives the same integers for."""
    return (integers / np.float32(FULL_SCALE)).astype(np.float32)


def wav_bytes(samples: NDArray[np.floating[Any]], sample_rate: int) -> bytes:
    """Mono samples (samples,), clipped to [-1, 1], as a WAV file."""
    content = to_pcm16(samples).tobytes()
    return wav_header(sample_rate, num_bytes=len(content)) + content


def wav_header(sample_rate: int, num_bytes: int | None = None) -> bytes:
    """The 44 bytes before mono PCM16 samples; of unknown length without `num_bytes`."""
    content = _UNKNOWN_LENGTH if num_bytes is None else num_bytes
    whole = _UNKNOWN_LENGTH if num_bytes is None else num_bytes + 36
    form = struct.pack(
        "<4sI4s4sIHHIIHH", b"RIFF", whole, b"WAVE", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16
    )
    return form + struct.pack("<4sI", b"data", content)
