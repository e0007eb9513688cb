"""How much memory a device has, how much of it is free, and what PyTorch holds of it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import psutil
import torch

CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def total_bytes(device: torch.device) -> int:
    """What the device has; Apple's GPUs use the main memory, and say how much of it they may have."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "xpu":
        return int(torch.xpu.get_device_properties(device).total_memory)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory())
    return int(psutil.virtual_memory().total)


def free_bytes(device: torch.device) -> int:
    """What a program could still have."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "xpu":
        return int(torch.xpu.mem_get_info(device)[0])
    main = _free_main_bytes()
    if device.type == "mps":
        return min(main, total_bytes(device) - int(torch.mps.driver_allocated_memory()))
    return main


def peak_bytes(device: torch.device) -> int:
    """The most that this process had so far: of a GPU, or of the main memory.

    Apple's GPUs do not remember it, so there it is what PyTorch holds now.
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if device.type == "xpu":
        return int(torch.xpu.max_memory_allocated(device))
    if device.type == "mps":
        return int(torch.mps.driver_allocated_memory())
    # macOS counts bytes, Linux kilobytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def held_bytes(device_type: str) -> tuple[int, int]:
    """What PyTorch has taken of a GPU, and which part of it tensors use."""
    if device_type == "cuda":
        return int(torch.cuda.memory_reserved()), int(torch.cuda.memory_allocated())
    if device_type == "xpu":
        return int(torch.xpu.memory_reserved()), int(torch.xpu.memory_allocated())
    if device_type == "mps":
        return int(torch.mps.driver_allocated_memory()), int(torch.mps.current_allocated_memory())
    return 0, 0


def _free_main_bytes() -> int:
    """Of the machine, or of the container where that has less."""
    free = int(psutil.virtual_memory().available)
    left = cgroup_bytes_left(_OWN_CGROUP, CGROUPS)
    return free if left is None else min(free, left)


def cgroup_bytes_left(own: Path, root: Path) -> int | None:
    """What control groups (version 2) leave to this process; None where they set no limit.

    Args:
        own: the file that names the process's group.
        root: the folder of all groups; in a container the container's own.
    """
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    name = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if name is None:
        return None
    group = root / name.lstrip("/")
    left = [
        found for one in (group, *group.parents) if one.is_relative_to(root) if (found := _left_in(one)) is not None
    ]
    return min(left, default=None)


def _left_in(group: Path) -> int | None:
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        if limit == "max":
            return None
        used = int((group / "memory.current").read_text(encoding="ascii"))
        numbers = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        # Files that were read count as used, and make room for whatever asks.
        return max(0, int(limit) - used + int(numbers.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None
