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
from typing import Any

_LOCK_FILE, _MARK_FILE = ".encore-lock", "lock"
_ASYNC_IO_PARTS = ("pin_memory", "async_io")


def compile_parts(*, on_gpu: bool, reads_disks: bool) -> None:
    """Compile and load what a run will use, one process of the machine at a time; nothing where it is there already.

    Args:
        on_gpu: whether workers compute on GPUs; on processors DeepSpeed sums through shared memory.
        reads_disks: whether weights wait on a disk.
    """
    from deepspeed.accelerator import get_accelerator  # noqa: PLC0415 - takes seconds, and few need it
    from deepspeed.ops.op_builder import AsyncIOBuilder  # noqa: PLC0415 - see above

    if not on_gpu:
        builder: Any = get_accelerator().create_op_builder("ShareMemCommBuilder")  # DeepSpeed publishes no types
        # What cannot be compiled here DeepSpeed does without.
        if builder is not None and builder.is_compatible(verbose=False):
            with building(builder.NAME):
                builder.load(verbose=False)
    if reads_disks:
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
