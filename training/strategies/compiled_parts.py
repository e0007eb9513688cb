"""Compiles parts of DeepSpeed on first use, also after an earlier build was killed.

PyTorch marks a running build with a file. A killed build leaves that file behind, and later processes wait for its
removal for ever. Here the processes of a machine take turns with a lock that the system releases when its holder ends,
so the holder knows that a mark it finds is a dead process's, and removes it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK_FILE, _MARK_FILE = ".encore-lock", "lock"
_ASYNC_IO_PARTS = ("pin_memory", "async_io")


def compile_disk_access() -> None:
    """Compile the asynchronous disk access if needed, one process of the machine at a time, and load it."""
    from deepspeed.ops.op_builder import AsyncIOBuilder  # noqa: PLC0415 - takes seconds, and few need it

    with building(*_ASYNC_IO_PARTS):
        AsyncIOBuilder().load(verbose=False)


@contextmanager
def building(*parts: str) -> Iterator[None]:
    """Hold the machine's lock on building these parts, and remove the marks of killed builds."""
    folders = [_folder_of(part) for part in parts]
    descriptor = os.open(folders[0] / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for folder in folders:
            (folder / _MARK_FILE).unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def _folder_of(part: str) -> Path:
    """Where PyTorch builds an extension: set by its environment variable, or in the user's cache."""
    from torch.utils import cpp_extension  # noqa: PLC0415 - takes a second, and only builds need it

    return Path(cpp_extension._get_build_directory(part, verbose=False))
