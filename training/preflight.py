"""Checks before any worker starts whether a job can run; each problem is one sentence for the user."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import torch
from torch import nn

from training.errors import TrainingError
from training.estimate import RunEstimate, free_bytes
from training.export import rows_by_speaker
from training.job import FineTuneJob
from training.machine import Machine
from training.model.checkpoint.reading import check_weights, find_weights, read_config
from training.model.config import ModelConfig
from training.model.device import choose_device
from training.model.errors import ModelError
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.network.talker import Talker


def job_problems(job: FineTuneJob, machine: Machine) -> list[str]:
    """Why a job could not run on a machine, whatever its data; of a cluster only what is known before it is joined."""
    return [
        *model_problems(job),
        *machine_problems(job, machine),
        *strategy_problems(job),
        *output_problems(job),
    ]


def disk_problems(job: FineTuneJob, estimate: RunEstimate) -> list[str]:
    """Too little room for a run's checkpoints."""
    free = free_bytes(job.output)
    if estimate.disk_bytes <= free:
        return []
    return [
        f"The run needs up to {estimate.disk_bytes / 1e9:.1f} GB for checkpoints in {job.output}, and "
        f"{free / 1e9:.1f} GB are free. Free some space, or keep fewer checkpoints."
    ]


def memory_problems(
    job: FineTuneJob, estimate: RunEstimate, worker_bytes: int | None, main_bytes: int | None = None
) -> list[str]:
    """A run whose weights, gradients and optimizer alone do not fit. Activations are an estimate, and do not count.

    Args:
        job: the recipe.
        estimate: of the run.
        worker_bytes: memory that each worker has where it computes; None where that is not known.
        main_bytes: main memory that it has beside that, to offload to.
    """
    state, main = estimate.memory.state.total, estimate.memory.main
    problems = []
    if worker_bytes is not None and state > worker_bytes:
        problems.append(
            f"A worker needs {state / 2**30:.1f} GiB for weights and optimizer alone, and has "
            f"{worker_bytes / 2**30:.1f} GiB. {_ways_to_fit(job)}"
        )
    # What passes through it to a disk is as much as DeepSpeed's own options say.
    if job.offload == "cpu" and main_bytes is not None and main > main_bytes:
        problems.append(
            f"A worker offloads {main / 2**30:.1f} GiB to the main memory, and has {main_bytes / 2**30:.1f} GiB "
            f"there. {_ways_to_fit(job)}"
        )
    return problems


def _ways_to_fit(job: FineTuneJob) -> str:
    ways = ["Close other programs, or choose a smaller model."]
    if job.method == "full" and not job.train_text_embedding:
        ways.append("Or train an adapter (--method lora).")
    if job.strategy == "ddp":
        ways.append("Or share the weights among workers on several GPUs or machines (--strategy fsdp2).")
    return " ".join(ways)


def uses_gpus(job: FineTuneJob, machine: Machine) -> bool:
    """Whether the workers will compute on GPUs; with device auto a cluster decides that when it is joined."""
    if job.device == "auto":
        return machine.address is None and machine.num_gpus > 0
    return job.device in ("cuda", "xpu")


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
    try:
        rows_by_speaker(job)
    except TrainingError as error:
        return [str(error)]
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
    """More workers than this machine has room for, or GPUs that it lacks; a cluster's size is not known yet."""
    if machine.address is not None:
        return []
    if job.device == "mps" and job.num_workers > 1:
        return ["Workers on Apple GPUs cannot train together. Use one worker, or device cpu."]
    if job.device == "mps":
        return _device_problems(job.device)
    if uses_gpus(job, machine) and machine.num_gpus == 0:
        return ["There is no GPU on this machine. Use device cpu, or a machine with GPUs."]
    kind, available = ("GPU", machine.num_gpus) if uses_gpus(job, machine) else ("CPU", machine.num_cpus)
    if job.num_workers > available:
        plural = "s" if available != 1 else ""
        return [
            f"{job.num_workers} workers need {job.num_workers} {kind}s, and this machine has {available} "
            f"{kind}{plural}. Use at most {available} worker{plural}."
        ]
    return []


def _device_problems(name: str) -> list[str]:
    try:
        choose_device(name)
    except ModelError as error:
        return [str(error)]
    return []


def strategy_problems(job: FineTuneJob) -> list[str]:
    """What DeepSpeed lacks here, or a folder to offload to."""
    if not job.uses_deepspeed:
        return []
    if job.device in ("mps", "xpu"):
        return [f"DeepSpeed's strategies are for CPUs and CUDA. On {job.device}, use ddp or fsdp2."]
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
    if job.deepspeed and not problems and (problem := _zero_problem(job)) is not None:
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


def _zero_problem(job: FineTuneJob) -> str | None:
    # Loads what distributes models, more than a second's worth, which most jobs are planned without.
    from training.strategies.zero import zero_options_problem  # noqa: PLC0415 - see above

    return zero_options_problem(job)
