"""ZeRO through DeepSpeed: stage 1 shards the optimizer, 2 the gradients too, 3 also the weights."""

from __future__ import annotations

import torch

from training.errors import PreflightError
from training.job import FineTuneJob
from training.loss import SpeechLoss
from training.strategies.learner import Learner
from training.workers import Workers


def wrap_zero(
    speech_loss: SpeechLoss, job: FineTuneJob, workers: Workers, dtype: torch.dtype, *, stage: int
) -> Learner:
    """Hand a model to DeepSpeed."""
    raise PreflightError(f"ZeRO stage {stage} is not available yet. Use ddp or fsdp2.")
