"""The group of workers of a run as one process sees it: rank, device, and sums over all workers."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from training.model.device import choose_device
from training.model.device_memory import peak_bytes

GROUP_TIMEOUT = timedelta(minutes=30)
"""How long workers wait for one of them: longer than one waits for room on a full disk. NCCL's own are ten minutes."""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The group of workers as one of them sees it.

    Attributes:
        rank: of this worker, from 0.
        size: number of workers.
        device: of this worker.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this is the worker that writes files shared by all."""
        return self.rank == 0

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums over the workers, in float64."""
        if self.size == 1:
            return list(values)
        # Only NCCL's group has no other place; Intel's GPUs may lack float64.
        place = self.device if self.device.type == "cuda" else torch.device("cpu")
        tensor = torch.tensor(values, dtype=torch.float64, device=place)
        dist.all_reduce(tensor)
        summed: list[float] = tensor.tolist()
        return summed

    def wait(self) -> None:
        """Wait until all workers have reached this call."""
        self.total([0.0])

    def peak_bytes(self) -> int:
        """Peak memory so far: of the GPU, or of this process without one."""
        return peak_bytes(self.device)


def distributed_backend(device: str, offload: str) -> str:
    """Name of the process group's backend: NCCL or XCCL between GPUs, gloo for CPUs and for offloaded tensors.

    Apple's GPUs have none: a single worker there sends nothing, and gloo begins without one.
    """
    if device == "xpu":
        return "cpu:gloo,xpu:xccl"
    if device != "cuda":
        return "gloo"
    return "cpu:gloo,cuda:nccl" if offload != "none" else "nccl"


def device_of_worker(choice: str, local_rank: int, num_workers: int = 1) -> torch.device:
    """The device a worker computes on; `auto` uses GPUs if they work here, Apple's only for a worker alone.

    Raises:
        ModelError: the device that was asked for does not work here.
    """
    chosen = choose_device(choice)
    if chosen.type == "mps" and num_workers > 1:
        # They find no way to each other. A plan that asks for mps by name is refused before.
        return torch.device("cpu")
    if chosen.type not in ("cuda", "xpu"):
        return chosen
    device = torch.device(chosen.type, local_rank)
    torch.accelerator.set_device_index(local_rank)
    return device


def local_world_size(size: int) -> int:
    """Number of workers on this machine, from the variable that torchrun and Ray set; all of them without it."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", size))


def agreed_group_size(workers: Workers, num_local: int) -> int:
    """Workers per sharding group of hybrid sharding, the same on all workers, whose machines may hold unequally many.

    Args:
        workers: all of them ask.
        num_local: number of workers on this worker's machine.
    """
    counts = workers.total([float(num_local) if rank == workers.rank else 0.0 for rank in range(workers.size)])
    # Ranks of a machine follow one another, so groups of a common divisor stay within machines.
    return hybrid_group_size(workers.size, math.gcd(*map(int, counts)))


def hybrid_group_size(num_workers: int, num_local: int) -> int:
    """Workers per sharding group: those of a machine, or half of all workers on a single machine."""
    return num_local if 1 < num_local < num_workers and num_workers % num_local == 0 else num_workers // 2
