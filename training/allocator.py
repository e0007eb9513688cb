"""Keeps memory that one step frees and the next needs again, instead of returning it to the system in between.

By default glibc takes every large activation from the system, which zeroes it page by page, and returns it: a sixth of
the processor time of a step of the embedded model. A training worker has its machine's memory to itself, so it may keep
what it will need again.
"""

from __future__ import annotations

import ctypes
import sys

# As <malloc.h> numbers them.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MAX_BLOCK_BYTES = 2**30
"""Larger blocks are rare, and are taken from the system as before."""

_KEPT_BYTES = 2**31 - 1
_PAD_BYTES = 64 * 2**20

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
