"""What a fine-tune would take, told before anybody has named the voice or agreed to anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import torch
from pydantic import BaseModel, ConfigDict

from backend.runs.errors import RunNotPossible
from backend.runs.planning.prepare import check_clips
from training.data.code_rows import read_card
from training.job import STRATEGIES, FineTuneJob, Strategy
from training.machine import Machine
from training.memory_plan import WorkerMemory, network_tensors, worker_memory
from training.model.checkpoint.reading import read_config
from training.model.config import ModelConfig
from training.model.hub.hub import resolve_model
from training.model.prompt.length import FRAMES_PER_SECOND
from training.plan import RunPlan, free_bytes, plan_run
from training.preflight import Machine as Room
from training.preflight import machine_problems, model_problems, strategy_problems, uses_gpus
from training.presets import PRESETS, Preset, preset_fields
from training.worker import plan_data

WORKER_COUNTS = (1, 2, 4, 8)
LITTLE_MINUTES, MUCH_MINUTES = 3.0, 30.0
"""With less there is not enough to repeat; with more, longer training still finds something new."""


class MemoryCell(BaseModel):
    """What a worker would hold with one strategy and one number of workers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Strategy
    num_workers: int
    memory: WorkerMemory


class Estimate(BaseModel):
    """A fine-tune as it would be.

    Attributes:
        problems: why it could not start like that; empty where it could.
        memory: of every strategy and number of workers.
        worker_bytes: memory that each worker could have on this machine; None where that is not known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: Preset
    job: FineTuneJob
    plan: RunPlan
    memory: tuple[MemoryCell, ...]
    worker_bytes: int | None
    free_disk_bytes: int
    problems: tuple[str, ...] = ()


def recommend_preset(minutes: float) -> Preset:
    """The preset for so much speech."""
    if minutes < LITTLE_MINUTES:
        return "quick"
    return "thorough" if minutes >= MUCH_MINUTES else "standard"


def estimate(
    home: Path, dataset: Path, model: str, preset: str | None, options: Mapping[str, Any], num_cpus: int | None = None
) -> Estimate:
    """Plan a fine-tune without starting or storing anything.

    Args:
        home: where it would be kept.
        dataset: folder of the dataset.
        model: mini, a checkpoint folder or a hub id; must be on this machine.
        preset: quick, standard or thorough; chosen from the data when None.
        options: fields of `FineTuneJob` that the preset shall not decide.
        num_cpus: how many workers may share this machine.

    Raises:
        EncoreError: data or model cannot be read, or an option is wrong.
    """
    card = read_card(dataset)
    check_clips(dataset, card)
    fixed = {
        "voice": "voice",
        "dataset": dataset,
        "dataset_digest": card.digest,
        "base_model": resolve_model(model),
        "output": home / "runs" / "planned",
    }
    draft = FineTuneJob.parse({**options, **fixed})
    _, training_set, _ = plan_data(draft)
    chosen = recommend_preset(training_set.num_frames / FRAMES_PER_SECOND / 60) if preset is None else _check(preset)
    job = FineTuneJob.parse({**preset_fields(chosen, training_set, draft), **options, **fixed})
    _, training_set, batches = plan_data(job)
    machine = Machine.here(num_cpus)
    room = Room(num_cpus=machine.num_cpus, num_gpus=machine.num_gpus)
    device = torch.device("cuda" if uses_gpus(job, room) and torch.cuda.is_available() else "cpu")
    plan = plan_run(job, training_set, batches, device=device)
    return Estimate(
        preset=chosen,
        job=job,
        plan=plan,
        memory=memory_cells(read_config(job.base_model), job, compute_bytes=2 if device.type == "cuda" else 4),
        worker_bytes=_worker_bytes(job.num_workers, device, machine),
        free_disk_bytes=free_bytes(job.output),
        problems=_problems(job, room, machine, plan),
    )


def memory_cells(config: ModelConfig, job: FineTuneJob, *, compute_bytes: int) -> tuple[MemoryCell, ...]:
    """Memory of every strategy with 1, 2, 4 and 8 workers; hybrid sharding needs 4 or more."""
    tensors = network_tensors(config, train_text_embedding=job.train_text_embedding)
    return tuple(
        MemoryCell(
            strategy=strategy,  # type: ignore[arg-type] # STRATEGIES are the arguments of that literal
            num_workers=count,
            memory=worker_memory(
                config,
                strategy,  # type: ignore[arg-type] # see above
                count,
                compute_bytes=compute_bytes,
                micro_batch_tokens=job.micro_batch_tokens,
                code_predictor_fraction=job.code_predictor_fraction,
                activation_checkpointing=job.activation_checkpointing,
                tensors=tensors,
            ),
        )
        for strategy in STRATEGIES
        for count in WORKER_COUNTS
        if strategy != "fsdp2-hybrid" or count >= 4
    )


def _check(preset: str) -> Preset:
    for known in PRESETS:
        if known == preset:
            return known
    raise RunNotPossible(f"There is no preset {preset[:40]!r}; there are {', '.join(PRESETS)}. Choose one of them.")


def _problems(job: FineTuneJob, room: Room, machine: Machine, plan: RunPlan) -> tuple[str, ...]:
    found = [*model_problems(job), *strategy_problems(job)]
    if machine.address is None:
        found += machine_problems(job, room)
    free = free_bytes(job.output)
    if plan.disk_bytes > free:
        found.append(
            f"It needs up to {plan.disk_bytes / 1e9:.1f} GB of disk, and {free / 1e9:.1f} GB are free. Free some space."
        )
    return tuple(found)


def _worker_bytes(num_workers: int, device: torch.device, machine: Machine) -> int | None:
    """Workers on one machine share its memory, those on GPUs have one each."""
    if machine.address is not None:
        return None
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)

    return int(psutil.virtual_memory().available) // num_workers
