"""The codes and speaker embedding of a clip as they are stored; reading them needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

TENSORS_SUFFIX = ".safetensors"


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedClip:
    """A clip as the model sees it: codes int16 (frames, codebooks), speaker embedding float32 (talker width,)."""

    codes: NDArray[np.int16]
    speaker_embedding: NDArray[np.float32]

    def to_bytes(self) -> bytes:
        """As it is stored."""
        return save_tensors({"codes": self.codes, "speaker_embedding": self.speaker_embedding})

    @classmethod
    def from_bytes(cls, content: bytes) -> EncodedClip:
        """As `to_bytes` stored it."""
        tensors = load_tensors(content)
        return cls(codes=tensors["codes"], speaker_embedding=tensors["speaker_embedding"])
