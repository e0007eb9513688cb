"""The training loop's interface to a model that is distributed over workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from training.data.example import TrainingBatch
from training.job import FineTuneJob
from training.loss import SpeechLosses

WHOLE_WEIGHTS_FILE = "weights.safetensors"
"""In checkpoints of runs that offload to disk, for the export; their other files hold each worker's share."""


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """Bytes that one worker holds between steps, gradients at their fullest."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """Sum of all three."""
        return self.parameters + self.gradients + self.optimizer


class Learner(Protocol):
    """A wrapped model with its optimizer. Every call is collective: all workers make it, in the same order."""

    device: torch.device

    def losses(self, batch: TrainingBatch, generator: torch.Generator, *, is_last: bool) -> SpeechLosses:
        """Both losses of a micro-batch; after the `is_last` one of a step, gradients are summed over workers."""
        ...

    def backward(self, objective: Tensor) -> None:
        """Add the gradients of a worker's part of the global objective."""
        ...

    def step(self, learning_rate: float, max_gradient_norm: float) -> float:
        """Clip, update and reset the gradients; returns their norm before clipping."""
        ...

    def state_bytes(self) -> StateBytes:
        """Bytes that this worker holds; meaningful between `backward` and `step`."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """The talker's full weights, float32 on the CPU, on worker 0; empty on the others."""
        ...

    def start_save(self, folder: Path) -> Any:  # Any: the strategy's own handle, opaque to the caller
        """Begin to write weights and optimizer into an empty folder; pass the result to `finish_save`."""
        ...

    def finish_save(self, pending: Any) -> None:
        """Wait until `start_save`'s files are written."""
        ...

    def load(self, folder: Path, *, may_write: bool) -> None:
        """Load the weights and optimizer that `start_save` wrote, with any number of workers.

        Args:
            folder: all of a checkpoint's files; one folder for all workers, or a copy on each machine.
            may_write: for one of the workers that see the same folder, which converts the files there if need be.
        """
        ...


def frozen_dtype(job: FineTuneJob, device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Of the frozen weights: with an adapter on a GPU that of the arithmetic, which halves them; else float32."""
    return dtype if job.lora is not None and device.type != "cpu" else torch.float32
