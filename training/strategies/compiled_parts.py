"""What DeepSpeed compiles of itself where it is first used, safe from processes that were killed while they did.

PyTorch's builder marks a build by a file that whoever is killed leaves behind, and everybody later waits for its
removal for ever. Here processes of a machine take turns by a lock that the system lets go of when its holder ends: who
has it knows that a mark is a dead process's, and removes it.
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
    """Compile and load what reads and writes disks, one process of the machine at a time, where it is not there yet."""
    from deepspeed.ops.op_builder import AsyncIOBuilder  # noqa: PLC0415 - takes seconds, and few need it

    with building(*_ASYNC_IO_PARTS):
        AsyncIOBuilder().load(verbose=False)


@contextmanager
def building(*parts: str) -> Iterator[None]:
    """Hold the machine's right to build these parts, and clear away the marks of builds that were killed."""
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
    """Where PyTorch builds an extension, as its environment variable or the person's cache says."""
    from torch.utils import cpp_extension  # noqa: PLC0415 - takes a second, and only builds need it

    return Path(cpp_extension._get_build_directory(part, verbose=False))
