"""Last stage: the sound of a clip becomes codes and a speaker embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.audio.canonical import read_part
from backend.dataset.clips.encoded_clip import TENSORS_SUFFIX, EncodedClip
from backend.dataset.clips.records import TokenizedClip
from backend.dataset.storage.stage_cache import stage_key
from backend.dataset.storage.workspace import DatasetWorkspace

if TYPE_CHECKING:
    # PyTorch takes seconds to load, and most workers only look results up.
    from backend.dataset.stages.clip_encoder import ClipEncoder


class TokenizeStage:
    """Looks results up for one model; making new ones needs its `ClipEncoder`."""

    def __init__(self, workspace: DatasetWorkspace, encoder_identity: str) -> None:
        self._workplace = workspace
        self._identity = encoder_identity

    def find(self, clip_id: str) -> TokenizedClip | None:
        """The result of an earlier build, if its tensors are still there."""
        found = self._workplace.cache.load("tokenize", self._key(clip_id), TokenizedClip)
        if found is None or not self._workplace.artifacts.path(found.tensors_id, TENSORS_SUFFIX).is_file():
            return None
        return found

    def run(self, clip_ids: Sequence[str], encoder: ClipEncoder) -> list[TokenizedClip]:
        """Encode clips that are stored. Raises EncoreError when one cannot be read or the disk is full."""
        assert encoder.identity == self._identity, "results would be kept under another model's name"
        sounds = [read_part(self._workplace.wav(clip_id))[0] for clip_id in clip_ids]
        results = []
        for clip_id, encoded in zip(clip_ids, encoder.encode(sounds), strict=True):
            tensors_id = self._workplace.artifacts.put(encoded.to_bytes(), TENSORS_SUFFIX)
            result = TokenizedClip(tensors_id=tensors_id, num_frames=len(encoded.codes))
            self._workplace.cache.save("tokenize", self._key(clip_id), result)
            results.append(result)
        return results

    def _key(self, clip_id: str) -> str:
        return stage_key("tokenize", clip_id, self._identity)


def read_encoded(workspace: DatasetWorkspace, tensors_id: str) -> EncodedClip:
    """Codes and embedding of a tokenized clip. Raises ArtifactError when they are gone."""
    return EncodedClip.from_bytes(workspace.artifacts.read(tensors_id, TENSORS_SUFFIX))
