"""Keeps memory that one step frees and the next needs again, instead of returning it to the system in between.

By default glibc takes every large activation from the system, which zeroes it page by page, and returns it: a sixth of
the processor time of a step of the embedded model. A training worker has its machine's memory to itself, so it may keep
what it will need again.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

# As <malloc.h> numbers them.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MAX_BLOCK_BYTES = 2**30
"""Larger blocks are rare, and are taken from the system as before."""

_KEPT_BYTES = 2**31 - 1
_PAD_BYTES = 64 * 2**20
_ARENA_BYTES = 64 * 2**20
_UNNAMED = 5
"""Words that the system says of a mapping without a name."""

ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(_MAX_BLOCK_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(_KEPT_BYTES),
    "MALLOC_TOP_PAD_": str(_PAD_BYTES),
    # Ray trains in a separate thread, whose own arena could not keep large blocks.
    "MALLOC_ARENA_MAX": "1",
}
"""The same settings for a process that is yet to be started; ignored by other systems."""


def keep_freed_memory() -> None:
    """Make the allocator of this process keep freed memory; does nothing unless it is glibc's."""
    if sys.platform != "linux":
        return
    allocator = ctypes.CDLL(None)
    if not hasattr(allocator, "mallopt"):
        return
    allocator.mallopt(_M_MMAP_THRESHOLD, _MAX_BLOCK_BYTES)
    allocator.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    allocator.mallopt(_M_TOP_PAD, _PAD_BYTES)


class _HeapInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`, over all arenas."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def freed_memory() -> int:
    """Bytes of main memory that were freed and are kept for what is allocated next; 0 where that cannot be known."""
    if sys.platform != "linux" or not hasattr(allocator := ctypes.CDLL(None), "mallinfo2"):
        return 0
    allocator.mallinfo2.restype = _HeapInfo
    try:
        resident = _resident_arenas()
    except OSError:  # a sandbox hides /proc
        return 0
    return max(0, resident - int(allocator.mallinfo2().uordblks))


def _resident_arenas() -> int:
    """Of the heap and of the arenas of threads, which begin at multiples of 64 MB and have no name."""
    num_bytes, is_arena = 0, False
    for words in map(str.split, Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines()):
        if not words[0].endswith(":"):
            start = int(words[0].partition("-")[0], 16)
            is_arena = words[-1] == "[heap]" or (len(words) == _UNNAMED and start % _ARENA_BYTES == 0)
        elif is_arena and words[0] == "Rss:":
            num_bytes += int(words[1]) * 1024
    return num_bytes


def return_freed_memory() -> None:
    """Give the system back what all threads have freed; does nothing unless the allocator is glibc's.

    By itself it returns the end of each thread's heap only: eight streams at once leave hundreds of megabytes behind.
    """
    if sys.platform == "linux" and hasattr(allocator := ctypes.CDLL(None), "malloc_trim"):
        allocator.malloc_trim(0)
