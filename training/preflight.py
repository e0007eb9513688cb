"""What is missing to run a job, found before any worker starts, each in one sentence."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from training.data.code_rows import DatasetError
from training.errors import PreflightError
from training.job import FineTuneJob
from training.model.checkpoint.reading import check_weights, find_weights, read_config
from training.model.config import ModelConfig
from training.model.errors import ModelError
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.network.talker import Talker
from training.plan import RunPlan, free_bytes, plan_run
from training.strategies.zero import zero_options_problem
from training.worker import plan_data


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What there is to run workers on: this machine, or a whole cluster.

    Attributes:
        num_cpus: that may be used at once.
        num_gpus: the same.
        where: it is, as a person calls it.
    """

    num_cpus: int
    num_gpus: int
    where: str = "this machine"

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        num_cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        return cls(num_cpus=num_cpus, num_gpus=torch.cuda.device_count() if torch.cuda.is_available() else 0)


def preflight(job: FineTuneJob, machine: Machine | None = None) -> RunPlan:
    """Check that a job can run, and say what it will take.

    Raises:
        PreflightError: it cannot, and why, in one sentence for each reason.
    """
    machine = machine or Machine.here()
    problems = [*model_problems(job), *machine_problems(job, machine), *strategy_problems(job), *output_problems(job)]
    if problems:
        raise PreflightError(" ".join(problems))
    try:
        _, training_set, batches = plan_data(job)
    except (DatasetError, ModelError) as error:
        raise PreflightError(str(error)) from error
    device = torch.device("cuda" if uses_gpus(job, machine) else "cpu")
    try:
        plan = plan_run(job, training_set, batches, device=device if torch.cuda.is_available() else torch.device("cpu"))
    except ModelError as error:
        raise PreflightError(str(error)) from error
    free = free_bytes(job.output)
    if plan.disk_bytes > free:
        raise PreflightError(
            f"The run needs up to {plan.disk_bytes / 1e9:.1f} GB for checkpoints in {job.output}, and "
            f"{free / 1e9:.1f} GB are free. Free some space, or keep fewer checkpoints."
        )
    return plan


def uses_gpus(job: FineTuneJob, machine: Machine) -> bool:
    """Whether the workers will compute on GPUs."""
    return job.device == "cuda" or (job.device == "auto" and machine.num_gpus > 0)


def model_problems(job: FineTuneJob) -> list[str]:
    """A base model that is missing, damaged, of another family, or that cannot clone."""
    try:
        config = read_config(job.base_model)
        _check_weights(job.base_model, config)
    except ModelError as error:
        return [str(error)]
    if not config.has_speaker_encoder:
        return [
            f"{job.base_model} is a {config.tts_model_type} model, which has no speaker encoder. "
            "Fine-tune a Base model instead."
        ]
    return []


def _check_weights(base_model: Path, config: ModelConfig) -> None:
    """Find out what a worker would miss in the files. Raises CheckpointError."""
    with torch.device("meta"):
        parts: dict[str, nn.Module] = {"talker.": Talker(config.talker, config.code_predictor)}
        if config.has_speaker_encoder:
            parts["speaker_encoder."] = SpeakerEncoder(config.speaker_encoder)
    for prefix, network in parts.items():
        check_weights(network, find_weights(base_model), prefix)


def machine_problems(job: FineTuneJob, machine: Machine) -> list[str]:
    """More workers than there is room for, or GPUs that are not there."""
    if job.device == "cuda" and machine.num_gpus == 0:
        return [f"There is no GPU on {machine.where}. Use device cpu, or a machine with GPUs."]
    kind, available = ("GPU", machine.num_gpus) if uses_gpus(job, machine) else ("CPU", machine.num_cpus)
    if job.num_workers > available:
        plural = "s" if available != 1 else ""
        return [
            f"{job.num_workers} workers need {job.num_workers} {kind}s, and {machine.where} has {available} "
            f"{kind}{plural}. Use at most {available} worker{plural}."
        ]
    return []


def strategy_problems(job: FineTuneJob) -> list[str]:
    """What DeepSpeed lacks here, or a folder to offload to."""
    if not job.uses_deepspeed:
        return []
    problems = []
    if importlib.util.find_spec("deepspeed") is None:
        problems.append("The package deepspeed is not installed. Install it, or use ddp or fsdp2.")
    if job.offload == "nvme" and not (any(map(shutil.which, ("c++", "g++", "clang++"))) and _has_ninja()):
        problems.append(
            "For offload to NVMe DeepSpeed compiles a part of itself, and needs a C++ compiler and ninja. Install them "
            "(Debian: apt install g++ ninja-build), or offload to cpu."
        )
    if job.nvme_folder is not None and not job.nvme_folder.is_dir():
        problems.append(f"There is no folder {job.nvme_folder} to offload to. Make it, or name another one.")
    if job.deepspeed and not problems and (problem := zero_options_problem(job)) is not None:
        problems.append(problem)
    if job.offload == "nvme" and not problems and not _has_async_io():
        problems.append(
            "Offload to NVMe needs the library libaio. Install it (Debian: apt install libaio-dev), or offload to cpu."
        )
    return problems


def output_problems(job: FineTuneJob) -> list[str]:
    """A folder for the run that cannot be written."""
    existing = next((parent for parent in (job.output, *job.output.parents) if parent.exists()), Path("/"))
    if not existing.is_dir():
        return [f"{existing} is a file, so the run cannot be written to {job.output}. Choose another folder."]
    if not os.access(existing, os.W_OK):
        return [f"The folder {existing} cannot be written. Choose another folder for the run."]
    return []


def _has_ninja() -> bool:
    # The package of that name brings the program along, beside the interpreter and perhaps not on PATH.
    return bool(shutil.which("ninja")) or Path(sys.executable).with_name("ninja").is_file()


def _has_async_io() -> bool:
    from deepspeed.ops.op_builder import AsyncIOBuilder  # noqa: PLC0415 - takes seconds, and few need it

    return bool(AsyncIOBuilder().is_compatible(verbose=False))
