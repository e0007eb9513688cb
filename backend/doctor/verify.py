"""Reads everything that Encore keeps, and compares it with the hashes that were taken when it was written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from backend.runs.storage.run_folder import RUNS_FOLDER, RunFolder
from backend.store.artifacts import ARTIFACTS_FOLDER, DIGITS
from training.export import EXPORTS_FOLDER
from training.model.checkpoint.hashes import find_damage

CLIPS = "clips and codes"
"""Files that are named by their hash, in folders by its first two digits."""


class Condition(StrEnum):
    """What was found of one folder."""

    INTACT = "intact"
    DAMAGED = "damaged"
    NO_HASH = "no hash recorded"
    """It was written by an earlier version: nothing is known of it."""


class Verified(BaseModel):
    """One thing that is kept.

    Attributes:
        kind: what it is, in a word.
        name: which one.
        damage: files that are not what was written.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    name: str
    condition: Condition
    damage: tuple[str, ...] = ()


def verify(home: Path, report: Callable[[str, int], None]) -> Iterator[Verified]:
    """Read everything in a home; `report` is told what is being read, and the bytes read so far."""
    read = 0
    for kind, name, folder in _folders(home):

        def count(num_bytes: int, what: str = f"{kind} {name}") -> None:
            nonlocal read
            read += num_bytes
            report(what, read)

        damage = find_damage(folder, count)
        condition = Condition.NO_HASH if damage is None else Condition.DAMAGED if damage else Condition.INTACT
        yield Verified(kind=kind, name=name, condition=condition, damage=tuple(damage or ()))
    for part in sorted(home.glob(f"{ARTIFACTS_FOLDER}/[0-9a-f][0-9a-f]")):
        damage = [file.name for file in sorted(part.iterdir()) if not _is_what_its_name_says(file)]
        read += sum(file.stat().st_size for file in part.iterdir())
        report(CLIPS, read)
        condition = Condition.DAMAGED if damage else Condition.INTACT
        yield Verified(kind=CLIPS, name=part.name, condition=condition, damage=tuple(damage))


def _folders(home: Path) -> Iterator[tuple[str, str, Path]]:
    """What carries hashes: its kind, its name and its folder."""
    for kind, pattern in (("voice", "voices/[!.]*"), ("dataset", "datasets/[!.]*")):
        yield from ((kind, path.name, path) for path in sorted(home.glob(pattern)) if path.is_dir())
    for path in sorted(home.glob(f"{RUNS_FOLDER}/*")):
        run = RunFolder(path)
        if run.dataset.is_dir():
            yield "dataset of a run", path.name, run.dataset
        complete = (point for point in sorted(run.checkpoints.glob("step-*")) if point.suffix == "")
        yield from (("checkpoint", f"{path.name}/{point.name}", point) for point in complete)
        for exports in (run.export, path / EXPORTS_FOLDER):
            yield from (("export", f"{path.name}/{each.name}", each) for each in sorted(exports.glob("[!.]*")))


def _is_what_its_name_says(file: Path) -> bool:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()[:DIGITS] == file.name.partition(".")[0]
    except OSError:
        return False
