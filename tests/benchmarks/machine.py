"""The machine a benchmark ran on, in words that name neither host nor paths."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import torch

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd", "i8mm", "bf16")
"""CPU features that decide which kernels run."""


def describe_machine(device: str) -> list[str]:
    """One fact per line."""
    cpu = _read("/proc/cpuinfo")
    model = _find(r"model name\s*:\s*(.+)", cpu) or platform.machine()
    present = set((_find(r"(?:flags|Features)\s*:\s*(.+)", cpu) or "").split())
    guest = " (virtual machine)" if "hypervisor" in present else ""
    memory_kib = _find(r"MemTotal:\s*(\d+)", _read("/proc/meminfo"))
    lines = [
        f"CPU: {model}{guest}, {len(os.sched_getaffinity(0))} cores, {', '.join(f for f in FLAGS if f in present)}",
        f"Memory: {int(memory_kib or 0) / 2**20:.0f} GiB",
        f"Python {platform.python_version()}, torch {torch.__version__}, {platform.system()}",
        f"Load average when it began: {os.getloadavg()[0]:.1f}; niceness {os.nice(0)}",
    ]
    if device == "cuda":
        lines.append(f"GPU: {torch.cuda.get_device_name()}")
    return lines


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""


def _find(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return found.group(1).strip() if found else None
