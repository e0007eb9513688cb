"""Waits for room on a disk that is full, and says so: what is lost by ending is more than what is lost by waiting."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path

ROOM_SECONDS = 1200.0
"""How long workers wait; shorter than the half hour after which a group of workers gives up on one of them."""

_POLL_SECONDS = 1.0


def wait_for_room(
    folder: Path,
    num_bytes: int,
    what: str,
    tell: Callable[[str], None],
    *,
    seconds: float | None = None,
    gives_up: Callable[[], bool] = lambda: False,
) -> bool:
    """Return when a disk has room; false if it had none for so long, or the caller gave up.

    Args:
        folder: on the disk; it exists.
        num_bytes: that must be free.
        what: needs them, as the subject of a sentence.
        tell: is told in one sentence that the wait begins, and in another that it ends.
        seconds: how long to wait; `ROOM_SECONDS` when None.
        gives_up: is asked every second.
    """
    give_up_at = time.monotonic() + (ROOM_SECONDS if seconds is None else seconds)
    if (free := free_bytes_at(folder)) >= num_bytes:
        return True
    tell(
        f"The disk of {folder} is full: {what} needs {_size(num_bytes)}, and {_size(free)} are free. "
        "The run waits for room and continues by itself."
    )
    while free_bytes_at(folder) < num_bytes:
        if gives_up() or time.monotonic() >= give_up_at:
            return False
        time.sleep(_POLL_SECONDS)
    tell("There is room on the disk again; the run continues.")
    return True


def free_bytes_at(folder: Path) -> int:
    """What this user may still write to the disk of a folder."""
    return shutil.disk_usage(folder).free


def is_full(error: BaseException) -> bool:
    """Whether an error of the system says that a disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"
