"""Estimates a run before it starts: steps, minutes, memory per worker and disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from training.data.batching import BatchPlan
from training.data.training_set import TrainingSet
from training.job import FineTuneJob
from training.memory_plan import Tensors, WorkerMemory, network_tensors, worker_memory
from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import find_weights
from training.model.prompt.length import FRAMES_PER_SECOND
from training.model.voice_model import choose_precision
from training.strategies.learner import frozen_dtype

_MEASURED_STEPS = 32


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The speed of one worker.

    Attributes:
        operations_per_second: floating-point operations that training achieves on the device.
        seconds_per_micro_batch: overhead of launching the operations.
    """

    operations_per_second: float
    seconds_per_micro_batch: float


# Assumptions for an unknown machine; the measured rate replaces them after the first report.
CPU_SPEED = Speed(operations_per_second=2.5e10, seconds_per_micro_batch=0.15)
GPU_SPEED = Speed(operations_per_second=1.2e14, seconds_per_micro_batch=0.15)


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """What one job will take.

    Attributes:
        num_steps: of the run.
        steps_per_epoch: of its first epoch.
        num_clips: to train on.
        num_too_long: clips left out.
        data_minutes: minutes of speech in an epoch.
        minutes: of training, without starting the workers.
        memory: on the worker that holds most.
        disk_bytes: upper bound, for checkpoints and exports.
    """

    num_steps: int
    steps_per_epoch: int
    num_clips: int
    num_too_long: int
    data_minutes: float
    minutes: float
    memory: WorkerMemory
    disk_bytes: int


def estimate_run(
    job: FineTuneJob,
    training_set: TrainingSet,
    batches: BatchPlan,
    *,
    device: torch.device,
    tensors: Tensors | None = None,
    speed: Speed | None = None,
    seconds_per_step: float | None = None,
) -> RunEstimate:
    """Estimate a run.

    Args:
        job: what will be done.
        training_set: on what; see `training.worker.plan_data`.
        batches: in which steps.
        device: of the kind the workers will have.
        tensors: of the network, where they are known already.
        speed: of a worker; an assumption when None.
        seconds_per_step: as measured, which leaves nothing to assume.
    """
    config = training_set.config
    tensors = tensors or network_tensors(config, train_text_embedding=job.train_text_embedding, lora=job.lora)
    precision = choose_precision(job.precision, device, tensors.talker_layers)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    if seconds_per_step is None:
        chosen = speed or (GPU_SPEED if device.type in ("cuda", "xpu") else CPU_SPEED)
        seconds_per_step = _seconds_per_step(job, training_set, batches, chosen)
    return RunEstimate(
        num_steps=batches.num_steps,
        steps_per_epoch=batches.steps_per_epoch,
        num_clips=len(training_set.clips),
        num_too_long=training_set.num_too_long,
        data_minutes=training_set.num_frames / FRAMES_PER_SECOND / 60,
        minutes=seconds_per_step * batches.num_steps / 60,
        memory=worker_memory(
            config,
            job.strategy,
            job.num_workers,
            compute_bytes=dtype.itemsize,
            frozen_bytes=frozen_dtype(job, device, dtype).itemsize,
            micro_batch_tokens=job.micro_batch_tokens,
            code_predictor_fraction=job.code_predictor_fraction,
            activation_checkpointing=job.activation_checkpointing,
            offload=job.offload,
            on_gpu=device.type != "cpu",
            tensors=tensors,
        ),
        disk_bytes=disk_bytes(job, tensors),
    )


def disk_bytes(job: FineTuneJob, tensors: Tensors) -> int:
    """Checkpoints in float32 with two moments, one more while it is written and the best beside; and both exports."""
    checkpoint = 12 * tensors.num_trained
    tokenizer = sum(path.stat().st_size for path in find_weights(job.base_model / SPEECH_TOKENIZER_FOLDER))
    export = 2 * (tensors.num_trained + tensors.num_frozen) + tokenizer
    return (job.keep_checkpoints + 2) * checkpoint + 2 * export


def free_bytes(folder: Path) -> int:
    """Room on the disk that holds a folder, or will."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    return shutil.disk_usage(existing).free


def _seconds_per_step(job: FineTuneJob, training_set: TrainingSet, batches: BatchPlan, speed: Speed) -> float:
    """Mean over the first steps of the slowest worker's time."""
    per_row, per_frame = _operations(training_set)
    if job.lora is not None:
        # Of the three products per weight, the one that makes a frozen weight's gradient is left out.
        per_row, per_frame = per_row * 2 // 3, per_frame * 2 // 3
    if job.activation_checkpointing:
        per_row, per_frame = per_row * 4 // 3, per_frame * 4 // 3
    total = 0.0
    num_steps = min(_MEASURED_STEPS, batches.num_steps)
    for index in range(num_steps):
        mine = batches.step(index).share_of(0, job.num_workers)
        for micro_batch in mine:
            num_frames = sum(training_set.clips[use.clip].num_frames for use in micro_batch.uses)
            operations = float(per_row * batches.num_tokens(micro_batch))
            operations += per_frame * num_frames * job.code_predictor_fraction
            total += operations / speed.operations_per_second + speed.seconds_per_micro_batch
    return total / num_steps


def _operations(training_set: TrainingSet) -> tuple[int, int]:
    """Floating-point operations of forward and backward pass: per talker row, and per frame of the code predictor."""
    talker, predictor = training_set.config.talker, training_set.config.code_predictor
    sizes = []
    for stack in (talker, predictor):
        heads = 2 * (stack.num_attention_heads + stack.num_key_value_heads) * stack.head_dim
        layer = stack.hidden_size * (heads + 3 * stack.intermediate_size)
        sizes.append(layer * stack.num_hidden_layers + stack.hidden_size * stack.vocab_size)
    return 6 * sizes[0], 6 * sizes[1] * talker.num_code_groups
