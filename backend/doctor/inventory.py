"""What lies on this machine and how large it is: models, Whisper's weights, and what Encore keeps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound
from pydantic import BaseModel, ConfigDict

from backend.settings import Settings
from backend.transcription.catalogue import PUBLISHED_WHISPERS
from training.model.hub.hub import EMBEDDED_FOLDER, EMBEDDED_MODEL, KNOWN_MODELS, DownloadProgress

KEPT = {
    "datasets": "Datasets",
    "artifacts": "Clips and codes",
    "cache": "Results kept for the next build",
    "uploads": "Recordings as they were given",
    "runs": "Runs with their checkpoints",
    "voices": "Voices",
    "takes": "Takes",
    "trash": "Deleted, can still be restored",
}


class StoredModel(BaseModel):
    """A model and what it takes.

    Attributes:
        num_bytes: on disk, or to download where it is not here.
        purpose: what it is good for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    is_here: bool
    num_bytes: int
    purpose: str = ""


class KeptFolder(BaseModel):
    """A part of Encore's home."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    num_bytes: int


class Inventory(BaseModel):
    """Everything at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: tuple[StoredModel, ...]
    whispers: tuple[StoredModel, ...]
    home: str
    kept: tuple[KeptFolder, ...]
    free_bytes: int


def take_inventory(settings: Settings) -> Inventory:
    """Look at everything; may take seconds where there are many files."""
    home = settings.home_folder
    existing = next(path for path in (home, *home.parents) if path.exists())
    kept = (
        KeptFolder(name=words, num_bytes=folder_bytes(home / folder))
        for folder, words in KEPT.items()
        if (home / folder).is_dir()
    )
    return Inventory(
        models=_models(settings),
        whispers=_whispers(),
        home=str(home),
        kept=tuple(kept),
        free_bytes=shutil.disk_usage(existing).free,
    )


def fetch_whisper(
    name: str, progress: Callable[[DownloadProgress], None], cancelled: Callable[[], bool]
) -> StoredModel:
    """Download a Whisper model unless it is here.

    Raises:
        EncoreError: it cannot be had, or was cancelled.
    """
    # Imported here, as below: it takes seconds to load.
    from backend.transcription.whisper_weights import find_whisper  # noqa: PLC0415 - see above

    weights = find_whisper(name, progress=progress, cancel=cancelled)
    return StoredModel(name=name, is_here=True, num_bytes=weights.path.stat().st_size)


def folder_bytes(folder: Path) -> int:
    """What the files in a folder take; one that has several names counts once."""
    sizes = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(parent, name))
            except OSError:
                continue
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def _models(settings: Settings) -> tuple[StoredModel, ...]:
    found = [
        StoredModel(
            name=EMBEDDED_MODEL,
            is_here=(EMBEDDED_FOLDER / "config.json").is_file(),
            num_bytes=folder_bytes(EMBEDDED_FOLDER),
            purpose="the small model inside Encore",
        )
    ]
    try:
        here = {repository.repo_id: repository.size_on_disk for repository in scan_cache_dir().repos}
    except (CacheNotFound, OSError):
        here = {}
    found += [
        StoredModel(
            name=known.name,
            is_here=known.name in here,
            num_bytes=here.get(known.name, known.num_bytes),
            purpose=known.purpose,
        )
        for known in KNOWN_MODELS
        if known.name in here or known.name.endswith("-Base")
    ]
    return tuple(found)


def _whispers() -> tuple[StoredModel, ...]:
    found = []
    for model in PUBLISHED_WHISPERS:
        is_here = model.path.is_file()
        size = model.path.stat().st_size if is_here else model.num_bytes
        found.append(StoredModel(name=model.name, is_here=is_here, num_bytes=size, purpose=model.purpose))
    return tuple(found)
