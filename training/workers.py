"""The group of workers of a run as one process sees it: rank, device, and sums over all workers."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist


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
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        summed: list[float] = tensor.tolist()
        return summed

    def wait(self) -> None:
        """Wait until all workers have reached this call."""
        self.total([0.0])

    def peak_bytes(self) -> int:
        """Peak memory so far: of the GPU, or of this process without one."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def distributed_backend(device: str, offload: str) -> str:
    """Name of the process group's backend: NCCL between GPUs, gloo for CPUs and for offloaded tensors."""
    if device == "cpu":
        return "gloo"
    return "cpu:gloo,cuda:nccl" if offload != "none" else "nccl"


def device_of_worker(choice: str, local_rank: int) -> torch.device:
    """The device a worker computes on; `auto` uses GPUs if available."""
    if choice == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def local_world_size(size: int) -> int:
    """Number of workers on this machine, from the variable that torchrun and Ray set; all of them without it."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", size))


def hybrid_group_size(num_workers: int, num_local: int) -> int:
    """Workers per sharding group: those of a machine, or half of all workers on a single machine."""
    return num_local if 1 < num_local < num_workers and num_workers % num_local == 0 else num_workers // 2
