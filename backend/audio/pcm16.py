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


def wav_bytes(samples: NDArray[np.floating[Any]], sample_rate: int, comment: str = "") -> bytes:
    """Mono samples (samples,), clipped to [-1, 1], as a WAV file; a comment comes after them."""
    content, info = to_pcm16(samples).tobytes(), info_chunk(comment)
    return wav_header(sample_rate, num_bytes=len(content), num_bytes_after=len(info)) + content + info


def wav_header(sample_rate: int, num_bytes: int | None = None, comment: str = "", num_bytes_after: int = 0) -> bytes:
    """The 44 bytes before mono PCM16 samples, or more with a comment; of unknown length without `num_bytes`."""
    info = info_chunk(comment)
    content = _UNKNOWN_LENGTH if num_bytes is None else num_bytes
    whole = _UNKNOWN_LENGTH if num_bytes is None else num_bytes + 36 + len(info) + num_bytes_after
    form = struct.pack(
        "<4sI4s4sIHHIIHH", b"RIFF", whole, b"WAVE", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16
    )
    return form + info + struct.pack("<4sI", b"data", content)


def info_chunk(comment: str) -> bytes:
    """A WAV file's comment tag; nothing for an empty one."""
    if not comment:
        return b""
    text = comment.encode() + b"\0"
    # Chunks begin at even places.
    tag = struct.pack("<4sI", b"ICMT", len(text)) + text + b"\0" * (len(text) % 2)
    return struct.pack("<4sI4s", b"LIST", 4 + len(tag), b"INFO") + tag
