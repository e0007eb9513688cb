"""Datasets and jobs small enough to train on in a test, made for the tiny reference checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.golden import GOLDEN_CHECKPOINT
from training.data.batching import BatchPlan
from training.data.code_rows import ROWS_FILE, CodeRow, DatasetCard, write_card, write_code_rows
from training.data.training_set import TrainingSet
from training.job import FineTuneJob
from training.model.prompt.length import FRAMES_PER_SECOND
from training.storage.objects import ObjectStore

NUM_CODEBOOKS, NUM_CODES, WIDTH = 16, 64, 48
REPOSITORY = Path(__file__).parents[2]
# Far beyond what they take, for a machine that does much else.
WORKERS_DEADLINE_SECONDS = 500
SENTENCES = ("A short one.", "Something longer, to be padded against.", "Hm.", "The quick brown fox jumps.")


def make_rows(
    frame_counts: Sequence[int], num_held_out: int = 0, seed: int = 3, width: int = WIDTH, num_codes: int = NUM_CODES
) -> list[CodeRow]:
    """Clips of given lengths with random codes; the last ones are held out."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for index, frames in enumerate(frame_counts):
        codes = torch.randint(0, num_codes, (frames * NUM_CODEBOOKS,), generator=generator)
        rows.append(
            CodeRow(
                clip_id=f"clip-{index:03d}",
                text=SENTENCES[index % len(SENTENCES)],
                language="auto",
                seconds=frames / FRAMES_PER_SECOND,
                codes=codes.tolist(),
                speaker_embedding=(torch.randn(width, generator=generator) * 0.1).tolist(),
                held_out=index >= len(frame_counts) - num_held_out,
            )
        )
    return rows


def write_dataset(folder: Path, rows: Sequence[CodeRow], **changes: Any) -> Path:
    """Write a dataset's folder; `changes` are fields of its card."""
    folder.mkdir(parents=True)
    write_code_rows(folder / ROWS_FILE, rows)
    card = DatasetCard(
        name="tiny",
        language="auto",
        model="tiny",
        tokenizer_fingerprint="tiny",
        num_codebooks=NUM_CODEBOOKS,
        reference_clip_id="clip-000",
        digest="digest",
    )
    write_card(folder, card.model_copy(update=changes))
    return folder


def make_job(folder: Path, **changes: Any) -> FineTuneJob:
    """A job on the dataset in `folder / "dataset"`."""
    fields: dict[str, Any] = {
        "voice": "Ann",
        "dataset": folder / "dataset",
        "dataset_digest": "digest",
        "base_model": GOLDEN_CHECKPOINT,
        "output": folder / "run",
        "device": "cpu",
        "precision": "fp32",
        "num_steps": 6,
        "learning_rate": 1e-3,
        "micro_batch_tokens": 160,
        "checkpoint_every": 100,
        "in_context_ratio": 0.25,
    }
    return FineTuneJob.parse({**fields, **changes})


def run_stages(
    folder: Path,
    stages: Sequence[dict[str, Any]],
    results: Path,
    *,
    with_deepspeed: bool = False,
    deadline_seconds: float | None = WORKERS_DEADLINE_SECONDS,
) -> None:
    """Do lists of tasks, each list by a number of workers of its own; fails with what the workers wrote."""
    folder.mkdir()
    results.mkdir(exist_ok=True)
    spec = {"results": str(results), "stages": list(stages), "with_deepspeed": with_deepspeed}
    (folder / "tasks.json").write_text(json.dumps(spec))
    with (folder / "log").open("w+") as log:
        done = subprocess.run(
            [sys.executable, "-m", "tests.training.strategy_worker", str(folder)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=REPOSITORY,
            timeout=deadline_seconds,
            check=False,
        )
        log.seek(0)
        assert done.returncode == 0, log.read()[-5000:]


def stage(world_size: int, tasks: Sequence[dict[str, Any]], copies: Sequence[tuple[Path, Path]] = ()) -> dict[str, Any]:
    """Tasks for one number of workers, after some folders have been copied."""
    pairs = [[str(source), str(copy)] for source, copy in copies]
    return {"world_size": world_size, "tasks": list(tasks), "copies": pairs}


def task(
    name: str, job: FineTuneJob, stop_after: int | None = None, storage: ObjectStore | None = None
) -> dict[str, Any]:
    """What `strategy_worker` is given to do; with a storage as workers of two machines that share nothing else."""
    url = str(storage.location) if storage is not None else None
    return {"name": name, "job": job.model_dump(mode="json"), "stop_after": stop_after, "storage": url}


def padding_share(plan: BatchPlan, training_set: TrainingSet) -> float:
    """Share of the positions computed in the first epoch that are padding."""
    parts = [part for index in range(plan.steps_per_epoch) for part in plan.step(index).micro_batches]
    used = sum(training_set.num_tokens(use) for part in parts for use in part.uses)
    return 1 - used / sum(map(plan.num_tokens, parts))
