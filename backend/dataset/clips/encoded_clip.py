"""The codes of a clip and what tells its speaker, as they are stored; reading them needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

TENSORS_SUFFIX = ".safetensors"


@dataclass(frozen=True, kw_only=True, eq=False)
class ClipVoice:
    """What tells the speaker of a clip: the model's own embedding, and the verifier's if there is one."""

    embedding: NDArray[np.float32]
    voiceprint: NDArray[np.float32] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedClip:
    """A clip as the model sees it, and as a speaker verifier does.

    Attributes:
        codes: int16 (frames, codebooks).
        speaker_embedding: the model's own, float32 (talker width,).
        voiceprint: the verifier's, float32 (width,), which knows people better; None in clips of earlier versions, and
            where there was no verifier.
    """

    codes: NDArray[np.int16]
    speaker_embedding: NDArray[np.float32]
    voiceprint: NDArray[np.float32] | None = None

    @property
    def voice(self) -> ClipVoice:
        """What tells its speaker."""
        return ClipVoice(embedding=self.speaker_embedding, voiceprint=self.voiceprint)

    def to_bytes(self) -> bytes:
        """As it is stored."""
        tensors: dict[str, NDArray[Any]] = {"codes": self.codes, "speaker_embedding": self.speaker_embedding}
        if self.voiceprint is not None:
            tensors["voiceprint"] = self.voiceprint
        return save_tensors(tensors)

    @classmethod
    def from_bytes(cls, content: bytes) -> EncodedClip:
        """As `to_bytes` stored it."""
        tensors = load_tensors(content)
        return cls(
            codes=tensors["codes"],
            speaker_embedding=tensors["speaker_embedding"],
            voiceprint=tensors.get("voiceprint"),
        )
