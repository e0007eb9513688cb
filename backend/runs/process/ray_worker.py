"""A worker under Ray Train: the same loop as anywhere, with reports into the run's folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray.train
from ray.train import UserCallback

from backend.cluster.connect import pin_to_this_machine
from backend.runs.process.desk import Desk, DeskActor, FolderDesk, RemoteDesk
from backend.runs.process.ray_dataset import fetch_rows, share_rows
from backend.runs.storage.control import LineWriter
from backend.runs.storage.run_folder import RunFolder
from training.disk_room import is_full, wait_for_room
from training.errors import PreflightError, TrainingError
from training.job import FineTuneJob
from training.model.errors import EncoreError
from training.storage.objects import open_store
from training.stored_checkpoints import stored_run
from training.stored_inputs import put_datasets, put_model
from training.worker import RunStorage, run_worker

_STEP_BYTES = 2**20
"""What must be free before a step that found the disk full is written down again."""


class RayContext:
    """Who a worker is, as Ray Train says; implements `training.worker.WorkerContext`."""

    def __init__(self, folder: RunFolder, attempt: int, desk: Desk, *, can_move: bool = False) -> None:
        """Of one attempt; with `can_move` the workers leave a machine that is about to be taken away."""
        context = ray.train.get_context()
        self.is_leaving, self._can_move = False, can_move
        self.rank: int = context.get_world_rank()
        self.local_rank: int = context.get_local_rank()
        self.world_size: int = context.get_world_size()
        self._folder, self._attempt, self._desk = folder, attempt, desk
        if self.rank == 0:
            desk.write({"workers": self.world_size})

    def report(self, metrics: Mapping[str, float], checkpoint_folder: Path | None) -> None:
        """Write every step into the run's folder, where a crash of Ray loses none; Ray gets only checkpoints."""
        if self.rank == 0:
            saved = {"checkpoint": checkpoint_folder.name} if checkpoint_folder else {}
            self._record({**metrics, "at": time.time(), **saved})
        if checkpoint_folder is not None:
            # A barrier over all workers, so not at every step. The checkpoint itself is ours: complete or absent,
            # while Ray's list of checkpoints is spoilt by a crash during its writing.
            ray.train.report(dict(metrics))

    def _record(self, line: Mapping[str, float | str]) -> None:
        """Write a step down, once the disk has room for it. Raises TrainingError."""
        while True:
            try:
                return self._desk.write(line)
            except OSError as error:
                place, step = self._folder.path, f"step {line['step']:.0f}"
                # Full by the system's own count, which may leave some bytes that nobody can use.
                if is_full(error) and place.is_dir() and wait_for_room(place, _STEP_BYTES, step, self.tell):
                    continue
                problem = f"Step {line['step']:.0f} could not be recorded: {error.strerror}."
                raise TrainingError(f"{problem} Free some space for the run's folder and resume it.") from error

    def tell(self, sentence: str) -> None:
        """Write it into the run's folder, for its events."""
        if self.rank == 0:
            with suppress(OSError):  # on a full disk the supervisor finds words of its own
                self._desk.write({"notice": sentence})

    def should_stop(self) -> bool:
        """Whether the person wants it, or a machine is being taken away; replaced workers stop at once.

        Raises:
            TrainingError: this attempt is over.
        """
        # A barrier over all workers, so asked at every step, and before anything that only some of them may learn.
        if self._can_move and ray.train.get_preemption_info() is not None and not self.is_leaving:
            self.is_leaving = True
            self.tell("A machine is being taken away; training is saved at this step and goes on elsewhere.")
        control = self._desk.control()
        if control.attempt > self._attempt:
            raise TrainingError("This run was resumed elsewhere; these workers are not needed any more.")
        return control.stop is not None or self.is_leaving


def train_under_ray(config: dict[str, Any]) -> bool:
    """What Ray Train calls on every worker.

    Returns whether the run has to go on with other workers, because a machine of these is being taken away. Ray Train
    takes whoever returns for done; left to itself it would let them train on until the machine is gone, and do those
    steps again.
    """
    folder, attempt = RunFolder(Path(config["folder"])), int(config["attempt"])
    is_here = folder.control.is_file()
    desk = FolderDesk(folder, attempt) if is_here or config.get("desk") is None else RemoteDesk(config.get("desk"))
    with _recording_problems(desk):
        if not is_here and config.get("desk") is None:
            raise PreflightError(
                f"A worker's machine does not see {folder.path}. Put ENCORE_HOME on storage that all machines share, "
                "or set ENCORE_STORAGE."
            )
        if isinstance(desk, RemoteDesk) and ray.train.get_context().get_world_rank() == 0:
            desk.begin()
        context = RayContext(folder, attempt, desk, can_move=bool(config.get("can_move")))
        job = FineTuneJob.parse({**config["job"], "num_workers": context.world_size})
        store = open_store(config.get("storage"))
        storage = RunStorage(store=store, base_model=config.get("model")) if store is not None else None
        result = run_worker(job, context, fetch_rows(len(job.speakers)), storage, is_output_here=is_here)
        return context.is_leaving and not result.is_complete


def share_rows_recording_problems(
    raw_job: Mapping[str, Any], folder: RunFolder, attempt: int
) -> Any:  # a Ray Data dataset
    """The rows that workers will fetch, read by the driver before it starts any."""
    with _recording_problems(FolderDesk(folder, attempt)):
        return share_rows([speaker.dataset for speaker in FineTuneJob.parse(raw_job).speakers])


def ray_storage(storage: str | None, folder: RunFolder, attempt: int) -> dict[str, Any]:
    """Where Ray Train keeps its own notes, as `RunConfig` takes it: beside what the run keeps.

    Raises:
        StorageError: the storage cannot be reached, which Ray would say in a page.
    """
    with _recording_problems(FolderDesk(folder, attempt)):
        store = open_store(storage)
        if store is None:
            return {"storage_path": str(folder.ray)}
        store.require()
        place = store.path(f"{stored_run(folder.path.name)}/{folder.ray.name}")
        return {"storage_path": place, "storage_filesystem": store.filesystem}


def inputs_for_other_machines(
    raw_job: Mapping[str, Any], storage: str | None, folder: RunFolder, attempt: int
) -> dict[str, Any]:
    """What workers on machines without the run's folder need, as a part of `train_under_ray`'s configuration.

    Raises:
        StorageError: the dataset or the base model cannot be stored.
    """
    desk = FolderDesk(folder, attempt)
    with _recording_problems(desk):
        store = open_store(storage)
        if store is None:
            return {"desk": None, "model": None}
        job = FineTuneJob.parse(raw_job)
        put_datasets(store, folder.path.name, job)
        model = put_model(store, job.base_model)
    actor: Any = ray.remote(num_cpus=0, scheduling_strategy=pin_to_this_machine(strictly=True))(DeskActor)
    return {"desk": actor.remote(str(folder.path), attempt), "model": model}


@contextmanager
def _recording_problems(desk: Desk) -> Iterator[None]:
    """Write down what every further attempt would meet as well; the supervisor ends the run with these words."""
    try:
        yield
    except EncoreError as error:
        desk.record_problem(f"{error} This was on the machine {desk.machine}." if desk.machine else str(error))
        raise


class FaultLog(UserCallback):
    """Writes down which workers were lost; called by Ray Train's controller."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Keep the ranks, and the first cause in one line; and a problem that a worker could not write down itself."""
        del run_context
        for exception in worker_exceptions.values():
            # Ray Train wraps what a worker raised.
            cause = getattr(exception, "_base_exc", exception)
            if isinstance(cause, EncoreError) and not self._folder.problem.is_file():
                FolderDesk(self._folder, self._attempt).record_problem(str(cause))
        first = next(iter(worker_exceptions.values()), None)
        lines = str(first).strip().splitlines() or [type(first).__name__]
        with suppress(OSError):
            writer = LineWriter(self._folder.faults, self._attempt)
            writer.write({"ranks": sorted(worker_exceptions), "cause": lines[-1][:500]})
