"""Processes that do lists of jobs together: `python -m tests.training.strategy_worker FOLDER`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from training.job import FineTuneJob
from training.storage.objects import open_store
from training.worker import RunStorage, run_worker

NUM_MACHINES = 2


class RecordingContext:
    """Keeps the reports, and asks for a stop after a given step."""

    def __init__(
        self, rank: int, world_size: int, stop_after: int | None = None, *, keeps_checkpoints: bool = True
    ) -> None:
        self.rank = self.local_rank = rank
        self.world_size, self._keeps_checkpoints = world_size, keeps_checkpoints
        self.reports: list[dict[str, float]] = []
        self.checkpoints: list[str] = []
        self.told: list[str] = []
        self._stop_after, self._num_asked = stop_after, 0

    def report(self, metrics: Mapping[str, float], checkpoint_folder: Path | None) -> None:
        # With the time, which tells what happens between steps too, and what this process has computed so far.
        self.reports.append({**metrics, "at": time.perf_counter(), "processor": time.process_time()})
        if checkpoint_folder is not None:
            assert checkpoint_folder.is_dir() or not self._keeps_checkpoints
            self.checkpoints.append(checkpoint_folder.name)

    def tell(self, sentence: str) -> None:
        self.told.append(sentence)

    def should_stop(self) -> bool:
        self._num_asked += 1
        # One worker's word must be enough, whichever it is.
        return self._num_asked == self._stop_after and self.rank == self.world_size - 1


def run_tasks(tasks: list[dict[str, Any]], rank: int, world_size: int, results: Path) -> None:
    for task in tasks:
        job, store = FineTuneJob.parse(task["job"]), open_store(task["storage"])
        # What is stored is removed from the machines.
        context = RecordingContext(rank, world_size, task["stop_after"], keeps_checkpoints=store is None)
        if store is None:
            run_worker(job, context)
        else:
            with on_machine(job, rank * NUM_MACHINES // world_size) as there:
                run_worker(there, context, storage=RunStorage(store=store))
        if rank == 0:
            found = {"reports": context.reports, "checkpoints": context.checkpoints}
            (results / f"{task['name']}.json").write_text(json.dumps(found))


@contextmanager
def on_machine(job: FineTuneJob, number: int) -> Iterator[FineTuneJob]:
    """For a block, a job as on one of several machines, which have nothing in common but what they learn from."""
    own = job.output.parent / f"machine-{number}"
    with patch.dict(os.environ, XDG_CACHE_HOME=str(own / "cache")):
        yield job.model_copy(update={"output": own / job.output.name})


def run_stage(store: Path, stage: dict[str, Any], results: Path) -> int:
    """One process per worker, forked: what takes seconds to import is imported once for all of them."""
    for source, copy in stage["copies"]:
        shutil.copytree(source, copy)
    world_size = stage["world_size"]
    os.environ["LOCAL_WORLD_SIZE"] = str(world_size)
    children = [_fork(store, stage["tasks"], rank, world_size, results) for rank in range(world_size)]
    failures = 0
    while children:
        child, status = os.wait()
        children.remove(child)
        if status:
            failures += 1
            # The others would wait for it for ever.
            for other in children:
                os.kill(other, signal.SIGKILL)
    return failures


def _fork(store: Path, tasks: list[dict[str, Any]], rank: int, world_size: int, results: Path) -> int:
    if child := os.fork():
        return child
    code = 1
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
        run_tasks(tasks, rank, world_size, results)
        dist.destroy_process_group()
        code = 0
    except Exception:  # noqa: BLE001 - whatever it is, the process that waits shows it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Do all stages, one after another."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    spec = json.loads((folder / "tasks.json").read_text())
    if spec["with_deepspeed"]:
        import deepspeed  # noqa: F401, PLC0415 - before the fork, and only where it is wanted
    for number, stage in enumerate(spec["stages"]):
        if run_stage(folder / f"store-{number}", stage, Path(spec["results"])):
            sys.exit(1)


if __name__ == "__main__":
    main()
