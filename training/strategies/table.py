"""The strategies by name. The loop knows none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch

from training.job import FineTuneJob, Strategy
from training.loss import SpeechLoss
from training.strategies.ddp import wrap_ddp
from training.strategies.fsdp2 import flat_mesh, hybrid_mesh, wrap_fsdp2
from training.strategies.learner import Learner
from training.strategies.zero import wrap_zero
from training.workers import Workers

Wrap = Callable[[SpeechLoss, FineTuneJob, Workers, torch.dtype], Learner]

WRAP_BY_STRATEGY: Mapping[Strategy, Wrap] = MappingProxyType(
    {
        "ddp": wrap_ddp,
        "fsdp2": partial(wrap_fsdp2, make_mesh=flat_mesh),
        "fsdp2-no-reshard": partial(wrap_fsdp2, make_mesh=flat_mesh, reshard=False),
        "fsdp2-hybrid": partial(wrap_fsdp2, make_mesh=hybrid_mesh),
        "zero1": partial(wrap_zero, stage=1),
        "zero2": partial(wrap_zero, stage=2),
        "zero3": partial(wrap_zero, stage=3),
    }
)
