"""One process at a time builds or edits a dataset; the lock goes with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.dataset.errors import DatasetBusy

DATASETS_FOLDER = "datasets"


def acquire_lock(home: Path, name: str) -> int:
    """Lock a dataset, and give the open descriptor that holds the lock until it is closed, here and where inherited.

    Raises:
        DatasetBusy: another process has it.
    """
    folder = home / DATASETS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DatasetBusy(
            f"The dataset {name} is being built or edited just now. Wait until that is done, or cancel the build."
        ) from None
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
    try:
        descriptor = acquire_lock(home, name)
    except DatasetBusy:
        return True
    os.close(descriptor)
    return False
