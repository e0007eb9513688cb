"""Checkpoints of optimizer state that is offloaded to disk, which DeepSpeed's own omit or cannot read again.

A worker's share of the float32 master weights and their moments is on disk in groups of parameters, which DeepSpeed
swaps in one at a time at every step. Here each group is swapped in the same way, saved or replaced, and swapped out.
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
    """Write a worker's share of master weights, moments and step counts, one file per group.

    Args:
        optimizer: DeepSpeed's optimizer of stage 3, which is untyped.
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
    """Restore what `save_disk_state` wrote, on disk and in the weights.

    Raises:
        ResumeError: it was written by another number of workers.
    """
    num_writers = len(list((folder / FOLDER).glob("*-0.safetensors")))
    if num_writers != num_workers:
        raise ResumeError(
            f"The checkpoint in {folder} holds the disk state of {num_writers} workers, not of {num_workers}. "
            f"Resume with num_workers={num_writers}."
        )
    for index, master in enumerate(optimizer.fp32_partitioned_groups_flat):
        with _in_memory(optimizer, index):
            tensors = load_file(_file(folder, rank, index))
            master.data.copy_(tensors.pop(_MASTER))
            # DeepSpeed writes new tensors to disk when it swaps the group out.
            optimizer.optimizer.state[master] = tensors
            optimizer._reassign_or_swap_out_partitioned_parameters(index)


@contextmanager
def _in_memory(optimizer: Any, index: int) -> Iterator[None]:
    """Swap a group of parameters in for the block; small groups always are in memory."""
    if not optimizer._swappable_optimizer_subgroup(index):
        yield
        return
    optimizer._optimizer_states_and_gradient_swap_in(index)
    yield
    optimizer._optimizer_states_and_gradient_swap_out(index)


def _file(folder: Path, rank: int, index: int) -> Path:
    return folder / FOLDER / f"worker-{rank}-{index}.safetensors"
