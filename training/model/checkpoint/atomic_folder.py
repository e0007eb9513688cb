"""Creates and replaces folders atomically."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.model.errors import CheckpointError
from training.model.owner import TAG_PATTERN, is_abandoned, working_name

# From Linux's fcntl.h and fs.h; Python does not define them.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def create_folder(destination: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder to fill, which becomes `destination` when the block ends without an error.

    It is created next to `destination`, synced to disk before it is renamed, and removed on errors. A killed process
    leaves a folder whose name starts with a dot and the destination's name; the next call removes it.

    Raises:
        CheckpointError: `destination` exists and must not be replaced, or is a file.
        OSError: the disk is full or fails; `destination` is untouched.
    """
    destination = destination.resolve()
    destination.parent.mkdir(parents=True, exist_ok=True)
    sweep_folder(destination.parent, destination.name)
    _refuse_existing(destination, replace=replace)
    temporary = _name_beside(destination, "saving")
    temporary.mkdir()
    try:
        yield temporary
        sync_tree(temporary)
        _refuse_existing(destination, replace=replace)
        if not destination.exists():
            temporary.rename(destination)
        elif not exchange_folders(temporary, destination):
            replace_in_two_steps(temporary, destination)
        sync(destination.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def exchange_folders(one: Path, other: Path) -> bool:
    """Swap two folders atomically; False if the system or file system does not support it (only Linux does)."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def replace_in_two_steps(new: Path, destination: Path) -> None:
    """Replace `destination`, which is missing for a moment; `sweep_folder` repairs a kill at that moment."""
    aside = _name_beside(destination, "replaced")
    destination.rename(aside)
    try:
        new.rename(destination)
    except OSError:
        aside.rename(destination)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _refuse_existing(destination: Path, *, replace: bool) -> None:
    if destination.exists() and not (replace and destination.is_dir()):
        kind = "folder" if destination.is_dir() else "file"
        raise CheckpointError(f"The {kind} {destination} exists already. Remove it or choose another name.")


def _name_beside(destination: Path, purpose: str) -> Path:
    return destination.with_name(f".{destination.name}.{purpose}.{working_name()}")


def sweep_folder(parent: Path, name: str = "") -> None:
    """Remove what killed writers left in a folder, and restore a destination that one had just moved aside.

    Args:
        parent: of the destinations.
        name: of the one to look after; all when empty.
    """
    pattern = re.compile(rf"\.({re.escape(name) or '.+'})\.(saving|replaced)\.{TAG_PATTERN}\.[0-9a-f]{{8}}")
    for leftover in sorted(parent.iterdir()):
        match = pattern.fullmatch(leftover.name)
        if match is None or not is_abandoned(leftover):
            continue
        if match[2] == "replaced" and not (parent / match[1]).exists():
            leftover.rename(parent / match[1])
        else:
            shutil.rmtree(leftover, ignore_errors=True)


def sync_tree(folder: Path) -> None:
    """Force every file and folder to the disk, so that a power cut cannot leave empty files under the final name."""
    for parent, _, files in os.walk(folder):
        for name in files:
            sync(Path(parent, name))
        sync(Path(parent))


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems sync no folders; their files have been synced by then.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
