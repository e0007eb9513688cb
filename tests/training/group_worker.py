"""Processes that make one call together: `python -m tests.training.group_worker FOLDER`, started by `call_together`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from tests.training.finetuning import REPOSITORY
from tests.training.strategy_worker import RecordingContext
from training import run_checkpoints, worker
from training.errors import TrainingError
from training.job import FineTuneJob
from training.run_checkpoints import CheckpointKeeper
from training.strategies import fsdp2
from training.workers import Workers, agreed_group_size

DEADLINE_SECONDS = 300.0
"""Far beyond what the calls take; what hangs hangs longer."""
LAST_SECONDS = 60.0
FAILED_SECONDS = 2.0
"""How long a process whose call returned or failed stays there for the others."""


def call_together(folder: Path, call: str, arguments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Have one process for each of the `arguments` make a call of this file; what it returned or raised, by rank.

    A process that did neither within the deadline has an empty answer.
    """
    folder.mkdir()
    (folder / "call.json").write_text(json.dumps({"call": call, "arguments": arguments}))
    command = [sys.executable, "-m", "tests.training.group_worker", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    children = subprocess.Popen(command, env=environment, cwd=REPOSITORY, start_new_session=True)
    try:
        children.wait(DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(children.pid, 9)
        children.wait()
    answers = [folder / f"{rank}.json" for rank in range(len(arguments))]
    return [json.loads(answer.read_text()) if answer.is_file() else {} for answer in answers]


def group_size(workers: Workers, folder: Path, *, num_local: int) -> int:
    """Workers per group of hybrid sharding, as a worker of a machine with so many agrees to."""
    del folder
    return agreed_group_size(workers, num_local)


def hybrid_timeouts(workers: Workers, folder: Path, *, seconds: float) -> list[float]:
    """How long a worker waits in each of the groups of hybrid sharding."""
    del folder
    with patch.object(fsdp2, "GROUP_TIMEOUT", timedelta(seconds=seconds)):
        groups = fsdp2.hybrid_mesh(workers).get_all_groups()
    backends: list[Any] = [group._get_backend(workers.device) for group in groups]
    return [backend.options._timeout.total_seconds() for backend in backends]


def newest_step(workers: Workers, folder: Path, *, job: Mapping[str, Any], seconds: float) -> int | None:
    """The step that a worker resumes from, with a view of the run's folder of its own."""
    del folder
    context = RecordingContext(workers.rank, workers.size)
    learner: Any = None  # is not asked before anything is loaded
    with patch.object(run_checkpoints, "SHARED_FOLDER_SECONDS", seconds):
        found = CheckpointKeeper(FineTuneJob.parse(job), learner, workers, context.tell).newest()
    return found.progress.step if found is not None else None


class FailingContext(RecordingContext):
    """On the first worker the report of the second step fails, and nowhere else."""

    def report(self, metrics: Mapping[str, float], checkpoint_folder: Path | None) -> None:
        """Fail alone."""
        super().report(metrics, checkpoint_folder)
        if self.rank == 0 and metrics["step"] == 2:
            raise TrainingError("Step 2 could not be recorded.")


def failing_run(workers: Workers, folder: Path, *, job: Mapping[str, Any]) -> None:
    """Train until the first worker fails alone."""
    del folder
    worker.run_worker(FineTuneJob.parse(job), FailingContext(workers.rank, workers.size))


CALLS: Mapping[str, Callable[..., Any]] = {
    "group_size": group_size,
    "hybrid_timeouts": hybrid_timeouts,
    "newest_step": newest_step,
    "failing_run": failing_run,
}


def _answer(folder: Path, call: str, rank: int, arguments: list[dict[str, Any]]) -> None:
    size = len(arguments)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=size)
    workers = Workers(rank=rank, size=size, device=torch.device("cpu"))
    try:
        answer = {"returned": CALLS[call](workers, folder, **arguments[rank])}
    except Exception as error:  # noqa: BLE001 - whatever it is, the test compares it
        answer = {"raised": f"{type(error).__name__}: {error}"}
    (folder / f"{rank}.json").write_text(json.dumps(answer))
    # A process that ends fails whatever others still take from it, also what has arrived and only has to be looked at.
    # Others may wait for one that failed until it ends.
    give_up = time.monotonic() + (LAST_SECONDS if "returned" in answer else FAILED_SECONDS)
    while time.monotonic() < give_up and not all((folder / f"{other}.json").is_file() for other in range(size)):
        time.sleep(0.01)


def main() -> None:
    """One process per worker, forked: what takes seconds to import is imported once for all of them."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    spec = json.loads((folder / "call.json").read_text())
    children = []
    for rank in range(len(spec["arguments"])):
        if not (child := os.fork()):
            try:
                _answer(folder, spec["call"], rank, spec["arguments"])
            finally:
                # Without what torch does at an end, which waits for others of whom one may have failed.
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
