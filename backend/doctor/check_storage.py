"""Whether the object storage can be written, read, listed and deleted from, found out by doing it."""

from __future__ import annotations

import secrets

from backend.doctor.finding import Finding, Level
from backend.settings import Settings
from training.errors import StorageError
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore

_NAME = "Storage"
_PROBES_FOLDER = "probes"
_PATIENCE_SECONDS = 2.0


def check_storage(settings: Settings) -> Finding:
    """Which storage is configured, and whether this machine can use it; takes longer where it does not answer."""
    if settings.storage is None:
        found = "No object storage; machines of a cluster share ENCORE_HOME."
        return Finding(name=_NAME, level=Level.GOOD, found=found)
    location = StorageLocation.parse(settings.storage)
    try:
        problem = _try(ObjectStore(location, patience_seconds=_PATIENCE_SECONDS))
    except StorageError as error:
        return Finding(
            name=_NAME, level=Level.BROKEN, found=str(error), remedy="See docs/deploy.md for what it must allow."
        )
    if problem is not None:
        return Finding(
            name=_NAME,
            level=Level.BROKEN,
            found=problem,
            remedy="Use a storage that shows what was written at once; S3 and Google's do.",
        )
    found = f"{location} can be written, read, listed and deleted from."
    return Finding(name=_NAME, level=Level.GOOD, found=found)


def _try(store: ObjectStore) -> str | None:
    """What does not work though nothing is refused, in a sentence; None where all does. Raises StorageError."""
    name, content = secrets.token_hex(8), secrets.token_bytes(32)
    path = f"{_PROBES_FOLDER}/{name}"
    store.write(path, content)
    try:
        if store.read(path) != content:
            return f"{store.location} gives back something else than was written."
        if store.sizes(_PROBES_FOLDER).get(name) != len(content):
            return f"{store.location} does not list what was written."
    finally:
        store.delete(path)
    if store.read(path) is not None:
        return f"{store.location} keeps what was deleted."
    return None
