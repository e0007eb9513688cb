"""What the machine is, and how fast it multiplies: what shares of its peak are taken of."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from typing import Any

import torch

from tests.benchmarks.machine import describe_machine

# Dense bfloat16 with float32 sums, in 10^12 per second, by the makers' data sheets; the first name that fits counts.
DATA_SHEETS = {
    "B200": 2250.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10": 125.0,
    "RTX 4090": 165.0,
    "RTX 3090": 71.0,
}
_ROUNDS = 5


def measure(setup: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Machine, versions, and the best of a few products of large matrices."""
    on_cuda = setup["device"] == "cuda"
    found: dict[str, Any] = {
        "lines": describe_machine(setup["device"]),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if on_cuda:
        found["gpus"] = [_describe(index) for index in range(torch.cuda.device_count())]
        found["cuda"], found["cudnn"] = torch.version.cuda, torch.backends.cudnn.version()
        found["data_sheet_tflops"] = data_sheet_of(found["gpus"][0]["name"])
    yield found
    size, dtype = (8192, torch.bfloat16) if on_cuda else (256, torch.float32)
    yield {**found, "measured_tflops": _tflops(size, dtype, setup["device"]), "of": f"{size}² {dtype} products"}


def data_sheet_of(name: str) -> float | None:
    """The peak of a GPU by its name, where it is known."""
    return next((peak for part, peak in DATA_SHEETS.items() if part in name), None)


def _describe(index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    return {
        "name": properties.name,
        "gib": round(properties.total_memory / 2**30, 1),
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
    }


def _tflops(size: int, dtype: torch.dtype, device: str) -> float:
    first, second = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(_ROUNDS):
        _wait(device)
        started = time.perf_counter()
        first @ second
        _wait(device)
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best / 1e12


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
