"""Finished work of each stage, found again by everything it depends on: what a second build need not do."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from backend.store.artifacts import write_whole

CACHE_FOLDER = "cache/dataset"
Stage = Literal["decode", "transcribe", "cut", "tokenize"]
STAGES: tuple[Stage, ...] = ("decode", "transcribe", "cut", "tokenize")

# Raised when a stage would answer differently to the same input: old results are then no longer found.
_VERSIONS: dict[Stage, int] = {"decode": 1, "transcribe": 3, "cut": 5, "tokenize": 1}

Record = TypeVar("Record", bound=BaseModel)


class StageCache:
    """One small file per result; they may lie on storage that all workers share."""

    def __init__(self, home: Path) -> None:
        self._folder = home / CACHE_FOLDER

    def load(self, stage: Stage, key: str, kind: type[Record]) -> Record | None:
        """The result of `stage` for what `key` stands for; None if there is none, or a damaged one."""
        try:
            return kind.model_validate_json(self._path(stage, key).read_bytes())
        except (OSError, ValidationError):
            return None

    def save(self, stage: Stage, key: str, result: BaseModel) -> None:
        """Keep a result. Raises ArtifactError when the disk is full."""
        write_whole(self._path(stage, key), result.model_dump_json().encode())

    def _path(self, stage: Stage, key: str) -> Path:
        return self._folder / stage / key[:2] / f"{key}.json"


def stage_key(stage: Stage, *inputs: str | float | BaseModel | None) -> str:
    """Name of the result of `stage` for these inputs; the order matters."""
    plain = [value.model_dump(mode="json") if isinstance(value, BaseModel) else value for value in inputs]
    text = json.dumps([stage, _VERSIONS[stage], *plain], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
