"""Steps of a fine-tune at public shapes: tokens per second, the operations they take, and memory beside its plan."""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.shapes import Shapes, materialize, read_shapes
from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_job, make_rows, write_dataset
from training.data.batching import BatchPlan
from training.data.training_set import TrainingSet
from training.estimate import _operations, estimate_run
from training.job import JOB_FILE, FineTuneJob
from training.job_data import plan_data
from training.model.checkpoint.writing import save_checkpoint
from training.model.config import ModelConfig
from training.model.network.talker import Talker

_SHARE_OF_TIME = 0.85
# The first steps allocate, and some libraries choose their kernels.
WARMUP_STEPS = 3
NUM_CLIPS = 64
_POLL_SECONDS = 0.2
_REPOSITORY = Path(__file__).parents[4]
_LAST_WORDS = 3000


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a step computes, on average over the epoch's steps and all workers."""

    tokens: float
    frames: float
    operations: float


def measure(setup: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Train until there are enough steps or the time is nearly over."""
    ends = time.monotonic() + _SHARE_OF_TIME * setup["seconds"]
    folder = Path(setup["folder"])
    shapes = read_shapes(setup["shapes"])
    base = write_random_checkpoint(folder / "base", shapes, setup["device"])
    job = make_benchmark_job(folder, base, setup)
    config, training_set, batches = plan_data(job)
    planned = estimate_run(job, training_set, batches, device=torch.device(setup["device"])).memory
    found = {
        "workers": job.num_workers,
        "strategy": job.strategy,
        "precision": job.precision,
        "micro_batch_tokens": job.micro_batch_tokens,
        "work_per_step": asdict(work_per_step(training_set, batches)),
        "planned_gib": planned.total / 2**30,
        "planned_state_gib": planned.state.total / 2**30,
        "layers": config.talker.num_hidden_layers,
    }
    # A large job's first step comes late; what is known before is kept even then.
    yield found
    with Workers(job, folder, setup["threads"]) as workers:
        for reports in workers.reports(WARMUP_STEPS + setup["max_steps"], ends):
            yield {**found, **sum_up(reports, work_per_step(training_set, batches), job.num_workers)}


def write_random_checkpoint(folder: Path, shapes: Shapes, device: str) -> Path:
    """A base checkpoint with random weights; codec and text tokenizer are the tiny one's, which no step uses."""
    config = ModelConfig.from_json(shapes.model)
    with torch.device("meta"):
        talker = Talker(config.talker, config.code_predictor)
    made = materialize(talker, torch.bfloat16, torch.device(device))
    save_checkpoint(
        folder,
        config=config,
        state={f"talker.{name}": weight for name, weight in made.state_dict().items()},
        speech_tokenizer=GOLDEN_CHECKPOINT / "speech_tokenizer",
        text_tokenizer=GOLDEN_CHECKPOINT,
    )
    return folder


def make_benchmark_job(folder: Path, base: Path, setup: dict[str, Any]) -> FineTuneJob:
    """All weights on random codes. Its end is never reached, because a run ends with a checkpoint of all weights."""
    config = ModelConfig.from_json(read_shapes(setup["shapes"]).model)
    lengths = random.Random(1)
    counts = [lengths.randint(20, 130) for _ in range(NUM_CLIPS)]
    rows = make_rows(counts, width=config.talker.hidden_size, num_codes=config.code_predictor.vocab_size)
    write_dataset(folder / "dataset", rows)
    return make_job(
        folder,
        base_model=base,
        device=setup["device"],
        precision="bf16" if setup["device"] == "cuda" else "fp32",
        strategy=setup["strategy"],
        num_workers=setup["workers"] if setup["strategy"] == "fsdp2" else 1,
        num_steps=100_000,
        checkpoint_every=100_000,
        micro_batch_tokens=setup["micro_batch_tokens"],
        in_context_ratio=0.0,
        report_every=1,
        export_at_end=False,
    )


def work_per_step(training_set: TrainingSet, batches: BatchPlan) -> Work:
    """Over the steps of the first epoch; operations as the estimate of a run counts them, forward and backward."""
    per_row, per_frame = _operations(training_set)
    steps = [batches.step(index) for index in range(batches.steps_per_epoch)]
    tokens = sum(batches.num_tokens(part) for step in steps for part in step.micro_batches) / len(steps)
    frames = sum(step.num_frames for step in steps) / len(steps)
    return Work(tokens=tokens, frames=frames, operations=per_row * tokens + per_frame * frames)


class Workers:
    """One process per GPU, as torchrun starts them; ended without the checkpoint that a run ends with."""

    def __init__(self, job: FineTuneJob, folder: Path, threads: int) -> None:
        self._log = job.output / "log.jsonl"
        self._messages = (folder / "workers.txt").open("w+")
        path = folder / JOB_FILE
        job.write(path)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = {"WORLD_SIZE": str(job.num_workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        environment = {**os.environ, **shared, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "training.worker", str(path)],
                cwd=_REPOSITORY,
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=self._messages,
                stderr=self._messages,
            )
            for rank in range(job.num_workers)
        ]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._messages.close()

    def reports(self, num_steps: int, ends: float) -> Iterator[list[dict[str, float]]]:
        """All reports so far, whenever there are more, until there are enough.

        Raises:
            RuntimeError: a worker has ended; with its last words.
        """
        known: list[dict[str, float]] = []
        while time.monotonic() < ends and len(known) < num_steps:
            if any(process.poll() is not None for process in self._processes):
                self._messages.seek(0)
                raise RuntimeError(f"A worker has ended: {self._messages.read()[-_LAST_WORDS:]}")
            lines = self._log.read_text().splitlines() if self._log.is_file() else []
            if len(lines) > max(len(known), WARMUP_STEPS):
                known = [json.loads(line) for line in lines]
                yield known
            time.sleep(_POLL_SECONDS)


def sum_up(reports: Sequence[dict[str, float]], work: Work, num_workers: int) -> dict[str, Any]:
    """Speed of the median step after the first ones, and the most memory that a worker had."""
    seconds = statistics.median(report["seconds_per_step"] for report in reports[WARMUP_STEPS:])
    return {
        "steps": len(reports) - WARMUP_STEPS,
        "seconds_per_step": seconds,
        "tokens_per_second": work.tokens / seconds,
        "frames_per_second": work.frames / seconds,
        "tflops_per_gpu": work.operations / seconds / num_workers / 1e12,
        "measured_gib": max(report["memory_bytes"] for report in reports) / 2**30,
        "measured_state_gib": max(report["state_bytes"] for report in reports) / 2**30,
    }
