"""This process among the workers of a run: who it is, what it runs on, and sums over all of them."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The workers as one of them sees them.

    Attributes:
        rank: of this one, from 0.
        size: how many there are.
        device: what this one computes on.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this one writes what is written once."""
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
        """Go on when all have come here."""
        self.total([0.0])

    def peak_bytes(self) -> int:
        """Most memory held so far: the device's where it has its own, else this process's."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def distributed_backend(device: str, offload: str) -> str:
    """Name of the process group's backend: gradients go over NCCL where there are GPUs, what is offloaded over gloo."""
    if device == "cpu":
        return "gloo"
    return "cpu:gloo,cuda:nccl" if offload != "none" else "nccl"


def device_of_worker(choice: str, local_rank: int) -> torch.device:
    """The device a worker computes on; `auto` takes GPUs where there are any."""
    if choice == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def local_world_size(size: int) -> int:
    """Workers on this machine, as torchrun and Ray tell them; all of them where nobody says."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", size))
