"""The checkpoints of a run: each a folder of its own, whole or absent.

OUTPUT/checkpoints/step-00000120/progress.json   how far the run had come, and which files belong to it
                                 job.json        its job
                                 state/          weights and optimizer, in the strategy's own format
                                 hashes.json     of all of these; checked before any of it is loaded
OUTPUT/checkpoints/step-00000080.damaged         one whose files were no longer what had been written
OUTPUT/checkpoints/best.json                     which one sounds best, as evaluation has found

Order of the data, learning rate and every random choice are functions of the job and of the number of steps done
(see `training/data/batching.py`), so that number is all that is saved of them, for any number of workers.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from training.disk_room import free_bytes_at, is_full, wait_for_room
from training.errors import AgreedError, CheckpointDiskFull, ResumeError, StorageError, TrainingError
from training.job import CHECKPOINTS_FOLDER, JOB_FILE, FineTuneJob
from training.model.checkpoint.atomic_folder import sync, sync_tree
from training.model.checkpoint.hashes import find_damage, write_hashes
from training.storage.objects import ObjectStore
from training.stored_checkpoints import CheckpointUploads, StoredCheckpoints

if TYPE_CHECKING:
    from training.strategies.learner import Learner
    from training.workers import Workers

STATE_FOLDER = "state"
PROGRESS_FILE, BEST_FILE, IN_USE_FILE = "progress.json", "best.json", "in-use"
SHARED_FOLDER_SECONDS = 90.0
"""How long another machine may take to see a new folder: NFS clients keep what they know of one for up to a minute."""
_POLL_SECONDS = 1.0
_SPARE_BYTES = 2**20
"""To be left on the disk beside a checkpoint, for what a run writes meanwhile."""

STEP_PREFIX, _INCOMPLETE, _DAMAGED = "step-", ".incomplete", ".damaged"


class Progress(BaseModel):
    """How far a run had come when a checkpoint was taken."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: NonNegativeInt
    """Steps done."""
    num_steps: PositiveInt
    epoch: NonNegativeInt
    dataset_digest: str
    family: str
    num_workers: PositiveInt
    """Workers that wrote it; ZeRO's files must be converted for another number."""
    talker_loss: float
    code_predictor_loss: float
    base_digest: str | None = None
    """SHA-256 of the base model's weights, of which a checkpoint lacks those that are not trained.

    None in checkpoints of all weights that an earlier version wrote.
    """
    file_bytes: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """Size of every file of the checkpoint, to recognise truncated files."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    folder: Path
    progress: Progress

    @property
    def state(self) -> Path:
        """The folder of weights and optimizer."""
        return self.folder / STATE_FOLDER

    def job(self) -> FineTuneJob:
        """The run's job."""
        return FineTuneJob.read(self.folder / JOB_FILE)


def list_checkpoints(output: Path) -> list[Checkpoint]:
    """The complete checkpoints of a run, oldest first, without damaged ones."""
    return _sort_out(output)[0]


def _find(output: Path, step: int) -> Checkpoint | None:
    return next((one for one in list_checkpoints(output) if one.progress.step == step), None)


def _sort_out(output: Path) -> tuple[list[Checkpoint], list[str]]:
    folder = output / CHECKPOINTS_FOLDER
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    complete, damaged = [], []
    for name in sorted(name for name in names if name.removeprefix(STEP_PREFIX).isdigit()):
        try:
            complete.append(read_checkpoint(folder / name))
        except ResumeError:
            damaged.append(name)
    return complete, damaged


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read one checkpoint.

    Raises:
        ResumeError: it is missing or damaged.
    """
    try:
        raw = json.loads((folder / PROGRESS_FILE).read_text(encoding="utf-8"))
        progress = Progress.model_validate(raw)
        spoilt = [name for name, size in progress.file_bytes.items() if (folder / name).stat().st_size != size]
    except (OSError, ValueError) as error:
        raise ResumeError(f"The checkpoint {folder} is damaged. Go back to an earlier one.") from error
    if spoilt:
        raise ResumeError(f"The checkpoint {folder} is damaged: {spoilt[0]} is truncated. Go back to an earlier one.")
    return Checkpoint(folder=folder, progress=progress)


def require_intact(checkpoint: Checkpoint) -> None:
    """Compare every file with the hash that was taken when it was written; those of earlier versions have none.

    Raises:
        ResumeError: one is damaged.
    """
    if damage := find_damage(checkpoint.folder):
        raise ResumeError(
            f"The checkpoint {checkpoint.folder} is damaged: {damage[0]} is not what was written. "
            "Go back to an earlier one."
        )


def set_aside(checkpoint: Path) -> None:
    """Take a damaged checkpoint out of the run's list; it is removed once a later one is complete."""
    aside = checkpoint.with_name(checkpoint.name + _DAMAGED)
    shutil.rmtree(aside, ignore_errors=True)
    checkpoint.rename(aside)


def set_damaged_aside(output: Path) -> list[str]:
    """Take the newest checkpoints out of the list as far as they are damaged, and tell their names.

    The newest of those that are left is intact, and the run goes on from it.
    """
    complete, damaged = _sort_out(output)
    for checkpoint in reversed(complete):
        try:
            require_intact(checkpoint)
            break
        except ResumeError:
            damaged.append(checkpoint.folder.name)
    for name in damaged:
        set_aside(output / CHECKPOINTS_FOLDER / name)
    return sorted(damaged)


def fetch_newer(stored: StoredCheckpoints, output: Path, tell: Callable[[str], None]) -> None:
    """Bring a run's newest checkpoint from the storage if this machine has none so new.

    Raises:
        StorageError: it cannot be asked, and there is nothing here to go on from; otherwise that is told.
    """
    own = list_checkpoints(output)
    try:
        stored.fetch_newest(own[-1].folder.name if own else "", tell)
    except StorageError as error:
        if not own:
            raise
        tell(f"{error} The run continues from what is on this machine.")


def mark_best(output: Path, step: int) -> None:
    """Mark a step's checkpoint as the best, which keeps it from being pruned."""
    folder = output / CHECKPOINTS_FOLDER
    temporary = folder / f".{BEST_FILE}.{os.getpid()}"
    temporary.write_text(json.dumps({"step": step}) + "\n", encoding="utf-8")
    temporary.replace(folder / BEST_FILE)


def best_step(output: Path) -> int | None:
    """The step marked best, if any was."""
    try:
        return int(json.loads((output / CHECKPOINTS_FOLDER / BEST_FILE).read_text(encoding="utf-8"))["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def hold(checkpoint: Path) -> None:
    """Protect a checkpoint from pruning while it is read, until `release`."""
    (checkpoint / IN_USE_FILE).touch()


def release(checkpoint: Path) -> None:
    """End `hold`: the checkpoint may be pruned again."""
    (checkpoint / IN_USE_FILE).unlink(missing_ok=True)


class CheckpointKeeper:
    """Writes a run's checkpoints beside training, and prunes old ones. All calls but `send_rest` are collective."""

    def __init__(
        self,
        job: FineTuneJob,
        learner: Learner,
        workers: Workers,
        tell: Callable[[str], None],
        store: ObjectStore | None = None,
    ) -> None:
        """Remove incomplete checkpoints that a killed run left behind; whole ones are also kept in `store`."""
        self._job, self._learner, self._workers, self._tell = job, learner, workers, tell
        self._stored = StoredCheckpoints(store, job.output) if store is not None else None
        self._uploads: CheckpointUploads | None = None
        self._folder = job.output / CHECKPOINTS_FOLDER
        self._pending: tuple[Path, Progress, Any] | None = None
        self._num_bytes = 0
        if self.keeps_files:
            self._folder.mkdir(parents=True, exist_ok=True)
            for leftover in self._folder.glob(f"{STEP_PREFIX}*{_INCOMPLETE}"):
                shutil.rmtree(leftover, ignore_errors=True)
        workers.wait()

    def newest(self) -> Checkpoint | None:
        """The checkpoint to resume from, the same on all workers; damaged ones are told of and passed over.

        Raises:
            ResumeError: see `find_resumable`; or a worker does not see it. Raised on all workers.
            StorageError: there is none here, and the storage cannot be asked.
        """
        failure: StorageError | ResumeError | None = None
        found: Checkpoint | None = None
        if self._workers.is_first:
            for name in set_damaged_aside(self._job.output):
                self._tell(damage_notice(name))
            try:
                self._meet_storage()
                found = find_resumable(self._job)
            except (StorageError, ResumeError) as error:
                failure = error
        step = float(found.progress.step) if found is not None else 0.0
        num_failed, step = self._workers.total([float(failure is not None), step])
        if num_failed:
            if failure is None:
                # Most often says the same, and any worker's words may be those that the user reads.
                find_resumable(self._job)
            raise failure or ResumeError("The first worker says why the run cannot be resumed.")
        return self._see(int(step)) if step else None

    def _see(self, step: int) -> Checkpoint:
        """The checkpoint that the first worker has found. Raises ResumeError on all workers if any does not see it."""
        folder = self._folder / checkpoint_name(step)
        give_up_at = time.monotonic() + SHARED_FOLDER_SECONDS
        # What another machine sees of shared storage may be a moment old, and is listed anew each time.
        while (found := _find(self._job.output, step)) is None and time.monotonic() < give_up_at:
            time.sleep(_POLL_SECONDS)
        num_blind = self._workers.total([float(found is None)])[0]
        if found is None or num_blind:
            raise ResumeError(
                f"{num_blind:.0f} of {self._workers.size} workers do not see the checkpoint {folder}, which the first "
                "one has found. Look after the storage that they share, and resume the run."
            )
        return found

    def _meet_storage(self) -> None:
        """Fetch a checkpoint that this machine lacks, and begin to send one that the storage lacks."""
        if self._stored is None:
            return
        self._uploads = CheckpointUploads(self._stored, self._job.keep_checkpoints, self._best_name, self._tell)
        fetch_newer(self._stored, self._job.output, self._tell)
        if own := list_checkpoints(self._job.output):
            self._uploads.submit(own[-1].folder)

    def _best_name(self) -> str | None:
        step = best_step(self._job.output)
        return None if step is None else checkpoint_name(step)

    def drain(self) -> None:
        """Wait until what has been saved is stored; what could not be stored has been told of."""
        self.send_rest()

    def send_rest(self) -> None:
        """Wait until this worker has sent what it has to send, for one that ends without the others."""
        if self._uploads is not None:
            self._uploads.drain()

    @property
    def keeps_files(self) -> bool:
        """Whether this worker makes and removes the folders that it and others write into."""
        return self._workers.is_first

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is being written and must be finished."""
        return self._pending is not None

    def start(self, progress: Progress, num_bytes: int, tell: Callable[[str], None]) -> None:
        """Begin a checkpoint once the disk has room for it; training may go on as soon as this returns.

        Args:
            progress: how far the run has come.
            num_bytes: estimate of its size; that of an earlier one is preferred.
            tell: is told that the disk is full, and that it has room again.

        Raises:
            AgreedError: there was no room for long, or the folder cannot be made.
        """
        assert self._pending is None
        folder = self._folder / f"{checkpoint_name(progress.step)}{_INCOMPLETE}"
        failure: OSError | None = None
        if self.keeps_files:
            shutil.rmtree(folder, ignore_errors=True)
            needed = (self._num_bytes or num_bytes) + _SPARE_BYTES
            try:
                if not wait_for_room(self._folder, needed, f"the checkpoint at step {progress.step}", tell):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                folder.mkdir()
            except OSError as error:
                failure = error
        self._agree(progress, folder, failure)
        self._pending = folder, progress, self._learner.start_save(folder / STATE_FOLDER)

    def finish(self) -> Path:
        """Wait for the checkpoint that was started, and rename it to its final name.

        Raises:
            CheckpointDiskFull: it could not be written for lack of room, and can be started again.
            AgreedError: it could not be written; earlier ones are unaffected.
        """
        from torch.distributed.checkpoint.api import CheckpointException  # noqa: PLC0415 - see `_cause`

        assert self._pending is not None
        folder, progress, pending = self._pending
        self._pending = None
        final = folder.with_name(folder.name.removesuffix(_INCOMPLETE))
        failure: BaseException | None = None
        try:
            self._learner.finish_save(pending)
        except (Exception, CheckpointException) as error:  # noqa: BLE001 - see below
            failure = error
        self._agree(progress, folder, failure, can_retry=True)
        try:
            self._complete(folder, final, progress)
        # All workers must agree on the outcome; and DCP wraps errors of the disk in a class that is not an Exception.
        except (Exception, CheckpointException) as error:  # noqa: BLE001 - see above
            failure = error
        self._agree(progress, folder, failure, can_retry=True)
        return final

    def _agree(
        self, progress: Progress, folder: Path, failure: BaseException | None, *, can_retry: bool = False
    ) -> None:
        """Abandon a checkpoint on all workers if any of them failed."""
        # torch says in no way of its own that a file could not be written whole.
        was_full = failure is not None and (is_full(_cause(failure)) or free_bytes_at(self._folder) < _SPARE_BYTES)
        num_failed, num_full = self._workers.total([float(failure is not None), float(was_full)])
        if not num_failed:
            return
        # What did not fit is more than this.
        written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        self._num_bytes = max(self._num_bytes, written * 5 // 4)
        # Others read the size first.
        self._workers.wait()
        shutil.rmtree(folder, ignore_errors=True)
        reason = _reason(failure) if failure is not None else "another worker could not write its part"
        kind = CheckpointDiskFull if can_retry and num_full else AgreedError
        raise kind(
            f"The checkpoint at step {progress.step} could not be written to {self._folder}: {reason}. "
            "Free some space there and resume the run."
        ) from failure

    def _complete(self, folder: Path, final: Path, progress: Progress) -> None:
        """Give what all workers have written its final name."""
        if not self._workers.is_first:
            return
        self._job.write(folder / JOB_FILE)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
        progress = progress.model_copy(update={"file_bytes": sizes})
        self._num_bytes = sum(sizes.values())
        (folder / PROGRESS_FILE).write_text(progress.model_dump_json(indent=1) + "\n", encoding="utf-8")
        write_hashes(folder)
        sync_tree(folder)
        # Exists only if the run was resumed from an earlier checkpoint.
        shutil.rmtree(final, ignore_errors=True)
        folder.rename(final)
        sync(self._folder)
        if self._uploads is not None:
            self._uploads.submit(final)
        self._prune()

    def _prune(self) -> None:
        uploads = self._uploads
        prune(self._job.output, self._job.keep_checkpoints, None if uploads is None else uploads.is_pending)


def prune(output: Path, num_kept: int, is_needed: Callable[[Path], bool] | None = None) -> None:
    """Remove all of a run's checkpoints but the newest, the best, those that are being read or needed otherwise."""
    for damaged in (output / CHECKPOINTS_FOLDER).glob(f"{STEP_PREFIX}*{_DAMAGED}"):
        shutil.rmtree(damaged, ignore_errors=True)
    best = best_step(output)
    for old in list_checkpoints(output)[:-num_kept]:
        is_read = (old.folder / IN_USE_FILE).exists() or (is_needed is not None and is_needed(old.folder))
        if old.progress.step != best and not is_read:
            shutil.rmtree(old.folder, ignore_errors=True)


def checkpoint_name(step: int) -> str:
    """The folder of a step's checkpoint; in the order of their names they are in the order of their steps."""
    return f"{STEP_PREFIX}{step:08d}"


def damage_notice(name: str) -> str:
    """One sentence about a checkpoint that was set aside."""
    return f"The checkpoint {name} is damaged and is ignored; an earlier one takes its place."


def require_base(checkpoint: Checkpoint, digest: str | None) -> None:
    """Refuse to put what was trained onto a base model that it was not trained on.

    Raises:
        TrainingError: it is another one, or was changed.
    """
    expected = checkpoint.progress.base_digest
    if expected is not None and expected != digest:
        raise TrainingError(
            f"The checkpoint in {checkpoint.folder} was trained on a base model whose weights have the SHA-256 "
            f"{expected[:12]}…, and those in {checkpoint.job().base_model} are others. Put the original model back."
        )


def find_resumable(job: FineTuneJob) -> Checkpoint | None:
    """The newest checkpoint that the job can resume from; None for a run that has none yet.

    Raises:
        ResumeError: the newest one is from an incompatible job or another family of strategies.
    """
    found = list_checkpoints(job.output)
    if not found:
        return None
    require_resumable(job, found[-1])
    return found[-1]


def require_resumable(job: FineTuneJob, newest: Checkpoint) -> None:
    """Refuse to go on from a checkpoint of an incompatible job or another family of strategies. Raises ResumeError."""
    if changed := job.differences(newest.job()):
        raise ResumeError(
            f"The run in {job.output} was started with another {', '.join(changed)}. "
            "Resume it with its original settings, or start a new run."
        )
    if newest.progress.family != job.checkpoint_family:
        raise ResumeError(
            f"The checkpoints in {job.output} were written by {newest.progress.family} and cannot be read by "
            f"{job.strategy}. Resume with a strategy of the same family."
        )


def _reason(failure: BaseException) -> str:
    """The cause of a failure on one line; DCP's own error is a page of every worker's stack."""
    failure = _cause(failure)
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    return (str(failure).strip().splitlines() or [type(failure).__name__])[-1].rstrip(".")


def _cause(failure: BaseException) -> BaseException:
    # Takes more than a second, and who only looks at checkpoints does without.
    from torch.distributed.checkpoint.api import CheckpointException  # noqa: PLC0415 - see above

    if isinstance(failure, CheckpointException):
        return next((error for error, _ in failure.failures.values()), failure)
    return failure
