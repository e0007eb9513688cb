"""Last stage: the sound of a clip becomes codes and a speaker embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from backend.audio.canonical import read_part
from backend.dataset.clips.encoded_clip import TENSORS_SUFFIX, EncodedClip
from backend.dataset.clips.stage_results import TokenizedClip
from backend.dataset.storage.workspace import DatasetWorkspace, stage_key


class Encoder(Protocol):
    """A `ClipEncoder`, as far as this stage needs it; most workers never load PyTorch."""

    @property
    def identity(self) -> str:
        """Hash of its weights."""
        ...

    def encode(self, clips: Sequence[NDArray[np.float32]]) -> list[EncodedClip]:
        """Codes and embedding of each clip (samples,)."""
        ...


def tokenize_key(clip_id: str, encoder_identity: str) -> str:
    """The key of a tokenized clip."""
    return stage_key("tokenize", clip_id, encoder_identity)


def lookup_tokenized(workspace: DatasetWorkspace, clip_id: str, encoder_identity: str) -> TokenizedClip | None:
    """The result of an earlier build, if there is one."""
    return workspace.cache.lookup("tokenize", tokenize_key(clip_id, encoder_identity), TokenizedClip)


def tokenize_clips(workspace: DatasetWorkspace, clip_ids: Sequence[str], encoder: Encoder) -> None:
    """Encode stored clips together and keep the results.

    Raises EncoreError if one cannot be read or the disk is full.
    """
    sounds = [read_part(workspace.wav(clip_id))[0] for clip_id in clip_ids]
    for clip_id, encoded in zip(clip_ids, encoder.encode(sounds), strict=True):
        tensors_id = workspace.artifacts.put(encoded.to_bytes(), TENSORS_SUFFIX)
        result = TokenizedClip(tensors_id=tensors_id, num_frames=len(encoded.codes))
        workspace.cache.save("tokenize", tokenize_key(clip_id, encoder.identity), result)
