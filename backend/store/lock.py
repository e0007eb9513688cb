"""Locks on files: the system gives them back when their holder ends, however it ends and whatever the clock says."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

# `is_held` takes the lock for a moment itself, which must not look like another holder.
_WAIT_SECONDS = 0.2
_POLL_SECONDS = 0.01


def acquire(path: Path, wait_seconds: float = _WAIT_SECONDS) -> int | None:
    """Lock a file, which is made where it is missing; None while another process holds it.

    Returns:
        An open descriptor. It holds the lock until it is closed, here and in every process that inherited it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up = time.monotonic() + wait_seconds
    while not _try(descriptor, fcntl.LOCK_EX):
        if time.monotonic() >= give_up:
            os.close(descriptor)
            return None
        time.sleep(_POLL_SECONDS)
    return descriptor


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
