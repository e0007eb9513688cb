"""A worker under Ray Train: the same loop as anywhere, with reports into the run's folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray.train
from ray.train import UserCallback

from backend.runs.control import Control, LineWriter
from backend.runs.ray_rows import fetch_rows, share_rows
from backend.runs.run_folder import RunFolder
from training.errors import TrainingError
from training.job import FineTuneJob
from training.model.errors import EncoreError
from training.worker import run_worker


class RayContext:
    """Who a worker is, as Ray Train says; implements `training.worker.WorkerContext`."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        context = ray.train.get_context()
        self.rank: int = context.get_world_rank()
        self.local_rank: int = context.get_local_rank()
        self.world_size: int = context.get_world_size()
        self._control = folder.control
        self._attempt = attempt
        self._lines = LineWriter(folder.metrics, attempt) if self.rank == 0 else None
        if self._lines is not None:
            self._lines.write({"workers": self.world_size})

    def report(self, metrics: Mapping[str, float], checkpoint_folder: Path | None) -> None:
        """Every step goes into the run's folder, where a crash of Ray loses none; Ray hears of checkpoints."""
        if self._lines is not None:
            saved = {"checkpoint": checkpoint_folder.name} if checkpoint_folder else {}
            self._lines.write({**metrics, "at": time.time(), **saved})
        if checkpoint_folder is not None:
            # A barrier over all workers, so not at every step. The checkpoint itself is ours: complete or absent,
            # while Ray's list of checkpoints is spoilt by a crash during its writing.
            ray.train.report(dict(metrics))

    def should_stop(self) -> bool:
        """Whether the person wants it; workers that another attempt has replaced stop at once.

        Raises:
            TrainingError: this attempt is over.
        """
        control = Control.read(self._control)
        if control.attempt > self._attempt:
            raise TrainingError("This run was resumed elsewhere; these workers are not needed any more.")
        return control.stop is not None


def train_under_ray(config: dict[str, Any]) -> None:
    """What Ray Train calls on every worker."""
    folder, attempt = RunFolder(Path(config["folder"])), int(config["attempt"])
    with _telling_problems(folder, attempt):
        context = RayContext(folder, attempt)
        job = FineTuneJob.parse({**config["job"], "num_workers": context.world_size})
        run_worker(job, context, fetch_rows())


def share_rows_or_tell(raw_job: Mapping[str, Any], folder: RunFolder, attempt: int) -> Any:  # a Ray Data dataset
    """The rows that workers will fetch, read by the driver before it starts any."""
    with _telling_problems(folder, attempt):
        return share_rows(FineTuneJob.parse(raw_job).dataset)


@contextmanager
def _telling_problems(folder: RunFolder, attempt: int) -> Iterator[None]:
    """Write down what every further attempt would meet as well; the supervisor ends the run with these words."""
    try:
        yield
    except EncoreError as error:
        if Control.read(folder.control).attempt == attempt:
            folder.problem.write_text(str(error), encoding="utf-8")
        raise


class FaultLog(UserCallback):
    """Writes down which workers were lost; called by Ray Train's controller."""

    def __init__(self, folder: Path, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Keep the ranks, and the first cause in one line."""
        del run_context
        first = next(iter(worker_exceptions.values()), None)
        lines = str(first).strip().splitlines() or [type(first).__name__]
        LineWriter(self._folder, self._attempt).write({"ranks": sorted(worker_exceptions), "cause": lines[-1][:500]})
