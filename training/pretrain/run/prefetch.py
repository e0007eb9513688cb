"""Batches prepared ahead of their steps by worker processes, so that a GPU does not wait for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

Batch = TypeVar("Batch")

_MAX_WORKERS = 12
_BATCHES_AHEAD = 3


class _Steps(Dataset[Batch]):
    """The batches of a run, by step."""

    def __init__(self, make: Callable[[int], Batch]) -> None:
        self._make = make

    def __getitem__(self, step: int) -> Batch:
        # One thread each: there are many of these processes.
        torch.set_num_threads(1)
        return self._make(step)


class Prefetch(Generic[Batch]):
    """Makes the batch of each step: on demand for a CPU, ahead in worker processes for a GPU."""

    def __init__(self, make: Callable[[int], Batch], device: torch.device) -> None:
        self._make = make
        self._num_workers = 0 if device.type == "cpu" else max(1, min(_MAX_WORKERS, (os.cpu_count() or 2) - 2))
        self._ahead: Iterator[Batch] | None = None
        self._next = -1

    def batch(self, step: int) -> Batch:
        """The batch of `step`; the following steps are made ahead."""
        if self._num_workers == 0:
            return self._make(step)
        if self._ahead is None or step != self._next:
            self._ahead = self._from(step)
        self._next = step + 1
        return next(self._ahead)

    def stop(self) -> None:
        """End the worker processes until the next batch."""
        self._ahead = None

    def _from(self, first: int) -> Iterator[Batch]:
        loader: DataLoader[Batch] = DataLoader(
            _Steps(self._make),
            batch_size=None,
            sampler=_CountFrom(first),
            num_workers=self._num_workers,
            prefetch_factor=_BATCHES_AHEAD,
            multiprocessing_context="fork",
            # Neither stacked nor converted.
            collate_fn=_unchanged,
        )
        return iter(loader)


class _CountFrom:
    """All steps from `first` on."""

    def __init__(self, first: int) -> None:
        self._first = first

    def __iter__(self) -> Iterator[int]:
        step = self._first
        while True:
            yield step
            step += 1


def _unchanged(batch: Batch) -> Batch:
    return batch
