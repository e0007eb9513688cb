"""What holds a process's memory, by owner: the named parts, what was freed and is kept, libraries, and the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import psutil

from training.allocator import freed_memory
from training.model.device_memory import held_bytes

MemoryUse = dict[str, dict[str, int]]
"""Bytes by device (`cpu`, `cuda`, `mps`, `xpu`) and owner."""


def memory_of_process(held: Mapping[str, Mapping[str, int]]) -> MemoryUse:
    """All memory of this process, with what its parts say that they hold on each device.

    On the CPU the owners add up to the resident size: `arena` was freed and is kept by the C allocator, `libraries` are
    files that are mapped, compiled code above all, and `other` is the rest, Python's objects above all.
    """
    info = psutil.Process().memory_info()
    use = {device: dict(owners) for device, owners in held.items()}
    # Only Linux says which part of it are files.
    main = use.setdefault("cpu", {}) | {"arena": freed_memory(), "libraries": int(getattr(info, "shared", 0))}
    use["cpu"] = main | {"other": max(0, info.rss - sum(main.values()))}
    for gpu in use.keys() - {"cpu"}:
        reserved, allocated = held_bytes(gpu)
        # What graphs compute in is reserved, and counts as allocated only while they are captured.
        graphs = use[gpu].get("graphs", 0)
        named = sum(use[gpu].values()) - graphs
        use[gpu] |= {"arena": max(0, reserved - allocated - graphs), "other": max(0, allocated - named)}
    return use


def added(uses: list[tuple[str, Mapping[str, int]]]) -> MemoryUse:
    """Several parts' bytes by owner, each with its device, in one."""
    sums: dict[str, Counter[str]] = {}
    for device, owners in uses:
        sums.setdefault(device, Counter()).update(owners)
    return {device: dict(owners) for device, owners in sums.items()}
