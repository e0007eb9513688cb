"""The page's own temporary folder: uploads and takes are voices, and must not outlive the app by accident."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from backend.store.errors import StoreError

FOLDER_PREFIX = "page-"
LOCK_NAME = ".lock"


@contextmanager
def temporary_folder(home: Path | None) -> Iterator[Path]:
    """A folder only this user can read, for as long as the block runs; removes what killed processes left behind.

    Args:
        home: where Encore stores things; None puts the folder where the system keeps temporary files.

    Raises:
        StoreError: nothing can be written there.
    """
    parent = home / "temporary" if home is not None else _own_system_folder()
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(parent)
        unlocked = Path(tempfile.mkdtemp(prefix="new-", dir=parent)).resolve()
    except OSError as error:
        raise StoreError(f"{parent} cannot be written: {error.strerror}. Set ENCORE_HOME to another folder.") from error
    with (unlocked / LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Takes the name that sweeps look for only now that it is locked.
        folder = unlocked.rename(unlocked.with_name(f"{FOLDER_PREFIX}{unlocked.name}"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def unguessable_path(folder: Path, name: str) -> Path:
    """Where a file called `name` may be put for the page to fetch: anyone who knows its address may fetch it too."""
    hidden = folder / secrets.token_urlsafe(16)
    hidden.mkdir(mode=0o700)
    return hidden / name


def sweep(parent: Path) -> None:
    """Remove folders in `parent` whose process is gone; a process keeps the lock of its folder while it lives."""
    for folder in parent.glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Whether no process holds the folder's lock. Raises OSError while it is being created, and for other folders."""
    with (folder / LOCK_NAME).open("r+") as lock:
        return _try_lock(lock)


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _own_system_folder() -> Path:
    """A folder per user; if another user has taken its name, a new one."""
    folder = Path(tempfile.gettempdir(), f"encore-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    is_ours = status.st_uid == os.getuid() and not folder.is_symlink() and not status.st_mode & 0o077
    return folder if is_ours else Path(tempfile.mkdtemp(prefix="encore-"))
