"""Recordings that the page was given: kept in the home for as long as a dataset is made of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from backend.dataset.clips.job import BuildJob

UPLOADS_FOLDER = "uploads"


def uploads_folder(home: Path, dataset: str) -> Path:
    """Where the files that were uploaded for a dataset are put."""
    return home / UPLOADS_FOLDER / dataset


def remove_uploads(home: Path, dataset: str, others: Iterable[BuildJob]) -> None:
    """Remove what was uploaded for a dataset that is gone, but nothing that one of the `others` is made of."""
    folder = uploads_folder(home, dataset).absolute()
    needed = {Path(path) for job in others for path in (*job.recordings, *job.transcripts)}
    if not any(path.is_relative_to(folder) or folder.is_relative_to(path) for path in needed):
        shutil.rmtree(folder, ignore_errors=True)
        return
    for file in [path for path in folder.rglob("*") if path.is_file()]:
        if not any(file.is_relative_to(path) for path in needed):
            file.unlink(missing_ok=True)
