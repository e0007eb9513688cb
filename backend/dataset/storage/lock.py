"""One process at a time builds or edits a dataset; the lock goes with the process, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.dataset.errors import DatasetBusy
from backend.store import lock
from backend.store.trash import guard_of

DATASETS_FOLDER = "datasets"


def acquire_lock(home: Path, name: str) -> int:
    """Lock a dataset, and give the open descriptor that holds the lock until it is closed, here and where inherited.

    Raises:
        DatasetBusy: another process has it.
    """
    descriptor = lock.acquire(_path(home, name))
    if descriptor is None:
        raise DatasetBusy(
            f"The dataset {name} is being built or edited just now. Wait until that is done, or cancel the build."
        )
    return descriptor


@contextmanager
def dataset_lock(home: Path, name: str) -> Iterator[None]:
    """Hold the lock for a block. Raises DatasetBusy."""
    descriptor = acquire_lock(home, name)
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(home: Path, name: str) -> bool:
    """Whether a living process has the lock."""
    return lock.is_held(_path(home, name))


def _path(home: Path, name: str) -> Path:
    return guard_of(home / DATASETS_FOLDER / name)
