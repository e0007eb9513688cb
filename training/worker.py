"""One worker of a fine-tune, started by Ray Train or by `torchrun -m training.worker JOB.json`."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from training.allocator import keep_freed_memory
from training.data.training_set import TrainingSet
from training.errors import AgreedError, PreflightError, TrainingError
from training.export import EXPORTS_FOLDER, export_all, with_base
from training.job import FineTuneJob
from training.job_data import Rows, plan_data
from training.loop import train
from training.model.checkpoint.digest import checkpoint_digest
from training.model.errors import EncoreError
from training.reporting import Reporting
from training.run_checkpoints import CheckpointKeeper, require_base
from training.scattered_checkpoints import ScatteredCheckpointKeeper
from training.storage.objects import ObjectStore, open_store
from training.stored_checkpoints import put_export
from training.stored_inputs import datasets_here, own_output, with_model_here
from training.strategies.build import build_learner
from training.strategies.learner import Learner
from training.worker_context import TorchrunContext, WorkerContext
from training.workers import GROUP_TIMEOUT, Workers, device_of_worker, distributed_backend


@dataclass(frozen=True, kw_only=True)
class RunStorage:
    """The object storage as a worker uses it.

    Attributes:
        store: the storage.
        base_model: the name under which it has the base model, for machines that lack its folder; see `put_model`.
    """

    store: ObjectStore
    base_model: str | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerResult:
    """The result of a worker's part of a run.

    Attributes:
        steps_done: since the start of the run.
        num_steps: of the whole run.
        checkpoint: the last one.
    """

    steps_done: int
    num_steps: int
    checkpoint: Path | None

    @property
    def is_complete(self) -> bool:
        """Whether all steps are done, which a stopped run's are not."""
        return self.steps_done >= self.num_steps


def run_worker(
    job: FineTuneJob,
    context: WorkerContext,
    rows: Rows | None = None,
    storage: RunStorage | None = None,
    *,
    is_output_here: bool = True,
) -> WorkerResult:
    """Do a worker's part of a job, resuming from the newest checkpoint if there is one.

    Args:
        job: what to do.
        context: the worker's place in the run, and where it reports to.
        rows: all rows of each speaker's dataset, held-out ones included, the same on every worker; read from disk when
            None.
        storage: where checkpoints and exports are kept as well, and are found by a run that lacks them; machines
            without a common folder need one.
        is_output_here: whether the job's output is a folder of this machine; it may be a folder of another one.

    Raises:
        EncoreError: it cannot be done; the message is for the user.
    """
    workers = Workers(
        rank=context.rank,
        size=context.world_size,
        device=device_of_worker(job.device, context.local_rank, context.world_size),
    )
    with process_group():
        is_shared = shares_output(job, workers, is_here=is_output_here, has_storage=storage is not None)
        return _train(job, context, workers, rows, storage, is_shared=is_shared)


@contextmanager
def process_group() -> Iterator[None]:
    """Make a group of one unless the launcher has made one, so that saving and sharding need no special case."""
    is_ours = not dist.is_initialized()
    if is_ours:
        store = dist.HashStore()  # type: ignore[attr-defined]  # public, but not in __all__
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        if is_ours:
            dist.destroy_process_group()


def _train(
    job: FineTuneJob,
    context: WorkerContext,
    workers: Workers,
    rows: Rows | None,
    storage: RunStorage | None,
    *,
    is_shared: bool,
) -> WorkerResult:
    torch.manual_seed(job.seed)
    store = storage.store if storage is not None else None
    # Checkpoints keep the job as it was planned: where this machine has a copy of the model, no other one has it.
    here = with_model_here(job, storage.store, storage.base_model) if storage is not None else job
    with datasets_here(here, store) if store is not None else nullcontext(here) as with_data:
        config, training_set, batches = plan_data(with_data, rows)
    learner = build_learner(here, config, workers)
    if is_shared or store is None:
        keeper = CheckpointKeeper(job, learner, workers, context.tell, store)
    else:
        job = job.model_copy(update={"output": own_output(job.output.name)})
        keeper = ScatteredCheckpointKeeper(job, learner, workers, context.tell, store)
    found = keeper.newest()
    # Of one worker's doing: for the others it would be gigabytes to read again.
    base_digest = checkpoint_digest(here.base_model) if workers.is_first else None
    if found is not None:
        _on_first(workers, partial(require_base, found, base_digest), "the base model is another one")
        if found.progress.num_steps != batches.num_steps:
            raise TrainingError(f"The run in {job.output} had {found.progress.num_steps} steps, not the planned ones.")
        learner.load(found.state, may_write=keeper.keeps_files)
    events = Reporting(job, context, keeper, batches, workers, base_digest=base_digest)
    events.checkpoint = found.folder if found is not None else None
    first_step = found.progress.step if found is not None else 0
    try:
        done = train(learner, batches, job, workers, events, first_step=first_step)
    except TrainingError as error:
        _save_rest(events, keeper, is_agreed=workers.size == 1 or isinstance(error, AgreedError))
        raise
    if job.export_at_end and done >= batches.num_steps:
        job = job.model_copy(update={"base_model": here.base_model})
        _export(job, learner, training_set, workers, step=done)
        if store is not None and workers.is_first:
            put_export(store, job.output.name, job.output / EXPORTS_FOLDER, context.tell)
    keeper.drain()
    return WorkerResult(steps_done=done, num_steps=batches.num_steps, checkpoint=events.checkpoint)


def _save_rest(events: Reporting, keeper: CheckpointKeeper, *, is_agreed: bool) -> None:
    """Keep what was saved before a failure, with the other workers only if all of them failed together."""
    if is_agreed:
        # The checkpoint that is being saved is from before the failure.
        events.finish_checkpoint()
        keeper.drain()
    else:
        # The others are at another call, and an answer to that one is not what this one would ask them.
        keeper.send_rest()


def _export(
    job: FineTuneJob,
    learner: Learner,
    training_set: TrainingSet,
    workers: Workers,
    *,
    step: int,
) -> None:
    """Write what a run ends with; all workers contribute their weights, and the first one writes."""
    talker = learner.weights()

    def write() -> None:
        weights = with_base(job, talker, step=step, embeddings=training_set.speakers_SD)
        export_all(weights, job.output / EXPORTS_FOLDER, replace_existing=True)

    _on_first(workers, write, f"the weights could not be exported to {job.output}")


def _on_first(workers: Workers, action: Callable[[], None], failed: str) -> None:
    """Act on the first worker while the others wait; if it fails, all do.

    Raises:
        EncoreError: the action's own on the first worker; on the others that it failed.
    """
    failure: EncoreError | None = None
    if workers.is_first:
        try:
            action()
        except EncoreError as error:
            failure = error
    if workers.total([float(failure is not None)])[0]:
        raise failure or TrainingError(f"The first worker says why {failed}.")


def shares_output(job: FineTuneJob, workers: Workers, *, is_here: bool, has_storage: bool) -> bool:
    """Whether the job's output is one folder that all workers see.

    Args:
        job: whose output it is.
        workers: all of them ask.
        is_here: whether it can be on this worker's machine, as far as its launcher knows.
        has_storage: whether there is a storage that takes the place of a common folder.

    Raises:
        PreflightError: it is not, or cannot be written, and there is no storage.
    """
    number = workers.total([float(secrets.randbits(32)) if workers.is_first else 0.0])[0]
    token = job.output / f".shared-{number:.0f}"
    failure = 0.0
    if workers.is_first and is_here:
        try:
            job.output.mkdir(parents=True, exist_ok=True)
            token.touch()
        except OSError:
            failure = 1.0
    if workers.total([failure])[0]:
        raise PreflightError(f"The folder {job.output} cannot be written. Choose another folder for the run.")
    num_without = workers.total([float(not (is_here and token.is_file()))])[0]
    if workers.is_first:
        token.unlink(missing_ok=True)
    if num_without and not has_storage:
        raise PreflightError(
            f"{num_without:.0f} of {workers.size} workers cannot see {job.output}. "
            "Put the run on storage that all machines share, or set ENCORE_STORAGE."
        )
    return not num_without


def main(arguments: list[str] | None = None) -> int:
    """Run one worker of the job in a file; exit status 0 if the run is complete or was stopped on request."""
    parser = argparse.ArgumentParser(prog="torchrun -m training.worker", description=__doc__)
    parser.add_argument("job", type=Path, help="a job file, as written by FineTuneJob.write")
    parser.add_argument(
        "--storage",
        default=os.environ.get("ENCORE_STORAGE"),
        help="keep checkpoints and exports there as well: s3://bucket/prefix, gs://... or file:///folder",
    )
    keep_freed_memory()
    try:
        parsed = parser.parse_args(arguments)
        store = open_store(parsed.storage)
        job = FineTuneJob.read(parsed.job)
        context = TorchrunContext(job.output)
        if context.world_size != job.num_workers:
            job = FineTuneJob.parse({**job.model_dump(), "num_workers": context.world_size})
        if context.world_size > 1:
            kind = device_of_worker(job.device, context.local_rank, context.world_size).type
            dist.init_process_group(distributed_backend(kind, job.offload), timeout=GROUP_TIMEOUT)
        with context.stopping_on_signals():
            run_worker(job, context, storage=RunStorage(store=store) if store is not None else None)
    except EncoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
