"""Memory that is freed in one step and taken again in the next: glibc gives it back to the system in between.

Activations are large, so that every one of them is fetched from the system, zeroed page by page, and returned: a sixth
of the processor time of a step of the embedded model. A worker has its processor's memory for itself while it trains,
so that it may keep what it will need again.
"""

from __future__ import annotations

import ctypes
import sys

# As <malloc.h> numbers them.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MAX_BLOCK_BYTES = 2**30
"""Larger ones are rare, and come from the system as before."""

_KEPT_BYTES = 2**31 - 1
_PAD_BYTES = 64 * 2**20

ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(_MAX_BLOCK_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(_KEPT_BYTES),
    "MALLOC_TOP_PAD_": str(_PAD_BYTES),
    # Ray trains in a thread of its own, which would get memory from a place that can keep no large blocks.
    "MALLOC_ARENA_MAX": "1",
}
"""The same for a process that is still to be started; other systems know none of these."""


def keep_freed_memory() -> None:
    """Tell the allocator of this process to keep what is freed; nothing where it is not glibc."""
    if sys.platform != "linux":
        return
    allocator = ctypes.CDLL(None)
    if not hasattr(allocator, "mallopt"):
        return
    allocator.mallopt(_M_MMAP_THRESHOLD, _MAX_BLOCK_BYTES)
    allocator.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    allocator.mallopt(_M_TOP_PAD, _PAD_BYTES)
