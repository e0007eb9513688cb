"""Where the stages of a build keep their results, and where uploads are; the same on every worker's machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from backend.audio.span import Span
from backend.dataset.clips.encoded_clip import TENSORS_SUFFIX, EncodedClip
from backend.dataset.clips.stage_counts import Outcome, Stage
from backend.dataset.clips.stage_results import WAV_SUFFIX, StageResult
from backend.store.artifacts import Artifacts, write_whole

UPLOADS_FOLDER = "uploads"
CACHE_FOLDER = "cache/dataset"

# Raised when a stage would answer differently to the same input: old results are then no longer found.
_VERSIONS: dict[Stage, int] = {"decode": 1, "transcribe": 3, "cut": 6, "tokenize": 1}

Result = TypeVar("Result", bound=StageResult)


class StageCache:
    """Finished work of each stage, a small file per result, found again by everything that it depends on."""

    def __init__(self, home: Path, artifacts: Artifacts) -> None:
        self._folder = home / CACHE_FOLDER
        self._artifacts = artifacts

    def lookup(self, stage: Stage, key: str, kind: type[Result]) -> Result | None:
        """The result under `key`; None if there is none, or it is damaged, or one of its artefacts is gone."""
        try:
            found = kind.model_validate_json(self.path(stage, key).read_bytes())
        except (OSError, ValidationError):
            return None
        is_whole = all(self._artifacts.path(digest, suffix).is_file() for digest, suffix in found.artifacts)
        return found if is_whole else None

    def get_or_run(
        self, stage: Stage, key: str, kind: type[Result], compute: Callable[[], Result]
    ) -> tuple[Result, Outcome]:
        """The result under `key`, computed and kept if there is none. Raises what `compute` does, and ArtifactError."""
        found = self.lookup(stage, key, kind)
        if found is not None:
            return found, "reused"
        result = compute()
        self.save(stage, key, result)
        return result, "worked"

    def save(self, stage: Stage, key: str, result: StageResult) -> None:
        """Keep a result. Raises ArtifactError when the disk is full."""
        write_whole(self.path(stage, key), result.model_dump_json().encode())

    def path(self, stage: Stage, key: str) -> Path:
        """Where a result is, or would be."""
        return self._folder / stage / key[:2] / f"{key}.json"


class DatasetWorkspace:
    """The folders below `ENCORE_HOME`; see `StoredWorkspace` for machines that do not see them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.artifacts = Artifacts(home)
        self.cache = StageCache(home, self.artifacts)

    def file(self, digest: str, suffix: str) -> Path:
        """Where an artefact is, or would be."""
        return self.artifacts.path(digest, suffix)

    def wav(self, audio_id: str) -> Path:
        """The sound of a canonical recording or a clip."""
        return self.file(audio_id, WAV_SUFFIX)

    @contextmanager
    def original(self, recording_id: str, path: Path) -> Iterator[Path]:
        """For a block, the file of a recording as it was given at `path`."""
        del recording_id
        yield path

    def read_encoded(self, tensors_id: str) -> EncodedClip:
        """Codes and embedding of a tokenized clip. Raises ArtifactError when they are gone."""
        return EncodedClip.from_bytes(self.artifacts.read(tensors_id, TENSORS_SUFFIX))


def stage_key(stage: Stage, *inputs: str | float | BaseModel | Span | None) -> str:
    """Name of the result of `stage` for these inputs; the order matters."""
    return hash_inputs(stage, _VERSIONS[stage], *inputs)


def hash_inputs(*inputs: str | float | BaseModel | Span | None) -> str:
    """32 hexadecimal digits that stand for these values."""
    text = json.dumps(to_jsonable_python(inputs), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def uploads_folder(home: Path, dataset: str) -> Path:
    """Where files that were uploaded for a dataset are kept."""
    return home / UPLOADS_FOLDER / dataset
