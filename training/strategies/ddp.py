"""DDP: every worker holds the whole model, and gradients are averaged. With one worker, plain PyTorch."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from training.job import FineTuneJob
from training.loss import SpeechLoss
from training.strategies.torch_learner import TorchLearner
from training.workers import Workers


def wrap_ddp(speech_loss: SpeechLoss, job: FineTuneJob, workers: Workers, dtype: torch.dtype) -> TorchLearner:
    """Replicate a model; weights stay float32, the arithmetic is in `dtype`."""
    module: torch.nn.Module = speech_loss.to(workers.device)
    if workers.size > 1:
        # Gradients that are views into the buckets they are sent in need no second copy.
        module = DistributedDataParallel(module, gradient_as_bucket_view=True)
    autocast = dtype if dtype != torch.float32 else None
    return TorchLearner(module, job, workers.device, num_workers=workers.size, autocast=autocast)
