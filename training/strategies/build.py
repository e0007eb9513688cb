"""Builds the learner of a job: the base model, wrapped by the strategy of the job's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
from torch.utils.checkpoint import checkpoint

from training.job import FineTuneJob, Strategy
from training.loss import SpeechLoss
from training.model.checkpoint.reading import find_weights, load_weights
from training.model.config import ModelConfig
from training.model.network.lora import put_adapter
from training.model.network.talker import Talker
from training.model.voice_model import choose_precision
from training.strategies.ddp import wrap_ddp
from training.strategies.fsdp2 import flat_mesh, hybrid_mesh, wrap_fsdp2
from training.strategies.learner import Learner, frozen_dtype
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


def build_learner(job: FineTuneJob, config: ModelConfig, workers: Workers) -> Learner:
    """Load the base model and distribute it over the workers by the job's strategy.

    What is trained is float32. The frozen weights of an adapter's base have the dtype of `frozen_dtype`.
    """
    with torch.device("meta"):
        talker = Talker(config.talker, config.code_predictor)
    load_weights(talker, find_weights(job.base_model), "talker.", dtype=torch.float32, device="cpu")
    num_parameters = sum(parameter.numel() for parameter in talker.model.layers.parameters())
    precision = choose_precision(job.precision, workers.device, num_parameters)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    if job.lora is not None:
        talker.to(frozen_dtype(job, workers.device, dtype))
        put_adapter(talker, job.lora, seed=job.seed)
    if job.activation_checkpointing:
        recompute_layers(talker)
    speech_loss = SpeechLoss(
        talker.train(),
        code_predictor_fraction=job.code_predictor_fraction,
        train_text_embedding=job.train_text_embedding,
        has_dropout=job.lora is not None and job.lora_dropout > 0,
    )
    return WRAP_BY_STRATEGY[job.strategy](speech_loss, job, workers, dtype)


def recompute_layers(talker: Talker) -> None:
    """Activation checkpointing: every decoder layer keeps only its input, and is recomputed in the backward pass.

    `forward` is replaced on the instances, inside the hooks that a strategy puts on the layers: gathered weights are
    present when a layer is recomputed, and parameters keep their names.
    """
    for layer in (*talker.model.layers, *talker.code_predictor.model.layers):
        # Shadows the method with an instance attribute; type checkers reject an ordinary assignment.
        vars(layer)["forward"] = partial(checkpoint, layer.forward, use_reentrant=False)
