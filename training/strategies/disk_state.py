"""What a worker's optimizer keeps on a disk, in checkpoints: DeepSpeed's own leave it out or cannot read it again.

A worker's share of the float32 masters and of their moments lies there in groups of parameters, which DeepSpeed takes
into memory one at a time, at every step. Here each is taken in as a step does, written or replaced, and put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.errors import ResumeError

FOLDER = "optimizer"
_MASTER = "master"


def save_disk_state(optimizer: Any, folder: Path, rank: int) -> None:
    """Write a worker's share of masters, moments and step counts, a file for each group.

    Args:
        optimizer: DeepSpeed's of stage 3.
        folder: of the checkpoint.
        rank: of the worker.
    """
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for index, master in enumerate(optimizer.fp32_partitioned_groups_flat):
        with _in_memory(optimizer, index):
            state: dict[str, Tensor] = optimizer.optimizer.state.get(master, {})
            tensors = {name: torch.as_tensor(value).clone() for name, value in state.items()}
            save_file({_MASTER: master.data.clone(), **tensors}, _file(folder, rank, index))


def load_disk_state(optimizer: Any, folder: Path, rank: int, num_workers: int) -> None:
    """Put what `save_disk_state` wrote back to where it was, and into the weights.

    Raises:
        ResumeError: another number of workers wrote it.
    """
    num_writers = len(list((folder / FOLDER).glob("*-0.safetensors")))
    if num_writers != num_workers:
        raise ResumeError(
            f"The checkpoint in {folder} holds what {num_writers} of {num_workers} workers had on their disks. "
            f"Resume with num_workers={num_writers}."
        )
    for index, master in enumerate(optimizer.fp32_partitioned_groups_flat):
        with _in_memory(optimizer, index):
            tensors = load_file(_file(folder, rank, index))
            master.data.copy_(tensors.pop(_MASTER))
            # Whatever is new among them DeepSpeed writes to the disk when it lets go of the group.
            optimizer.optimizer.state[master] = tensors
            optimizer._reassign_or_swap_out_partitioned_parameters(index)


@contextmanager
def _in_memory(optimizer: Any, index: int) -> Iterator[None]:
    """A group of parameters in memory; small ones are always there."""
    if not optimizer._swappable_optimizer_subgroup(index):
        yield
        return
    optimizer._optimizer_states_and_gradient_swap_in(index)
    yield
    optimizer._optimizer_states_and_gradient_swap_out(index)


def _file(folder: Path, rank: int, index: int) -> Path:
    return folder / FOLDER / f"worker-{rank}-{index}.safetensors"
