"""Checkpoints of workers on machines without a common folder: each machine uploads its files, the first joins them.

A checkpoint is there when it is in the storage. What machines have of it until then is theirs alone, and is removed
when it is stored. To resume, every machine fetches the whole of it.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
from typing_extensions import override

from training.errors import StorageDamaged, StorageError
from training.job import JOB_FILE, FineTuneJob
from training.run_checkpoints import (
    PROGRESS_FILE,
    STEP_PREFIX,
    Checkpoint,
    CheckpointKeeper,
    Progress,
    read_checkpoint,
    require_resumable,
)
from training.storage.objects import ObjectStore
from training.storage.uploads import UploadQueue
from training.stored_checkpoints import StoredCheckpoints
from training.strategies.learner import Learner
from training.workers import Workers

JOIN_SECONDS = 600.0
"""How much longer than the first worker others may take to send their parts; a group waits half an hour for one."""


class ScatteredCheckpointKeeper(CheckpointKeeper):
    """As `CheckpointKeeper`, where `job.output` is a folder of each machine's own."""

    def __init__(
        self,
        job: FineTuneJob,
        learner: Learner,
        workers: Workers,
        tell: Callable[[str], None],
        store: ObjectStore,
    ) -> None:
        """Keep checkpoints in `store`."""
        self._is_first_here = _is_first_in(job.output, workers)
        super().__init__(job, learner, workers, tell, store)
        self._there = StoredCheckpoints(store, job.output)
        self._saves: dict[Path, tuple[str, list[int]]] = {}
        self._queue = UploadQueue(self._send, tell)

    @property
    @override
    def keeps_files(self) -> bool:
        return self._is_first_here

    @override
    def newest(self) -> Checkpoint | None:
        names: list[Any] = [None]
        failure: StorageError | None = None
        if self._workers.is_first:
            try:
                names = [self._there.names()]
            except StorageError as error:
                failure = error
        self._agree_on(failure)
        dist.broadcast_object_list(names)
        for name in reversed(names[0]):
            if self._fetch(name):
                found = read_checkpoint(self._folder / name)
                require_resumable(self._job, found)
                return found
        return None

    def _fetch(self, name: str) -> bool:
        """Bring a checkpoint to every machine; false where it is damaged. Raises StorageError on all workers."""
        failure: StorageError | None = None
        try:
            if self._is_first_here:
                self._there.fetch(name)
        except StorageError as error:
            failure = error
        is_damaged = isinstance(failure, StorageDamaged)
        num_damaged = self._workers.total([float(is_damaged)])[0]
        self._agree_on(None if is_damaged else failure)
        if num_damaged and self._workers.is_first:
            self._tell(f"{failure or name} An earlier checkpoint takes its place.")
            self._there.forget_damaged(name)
        return not num_damaged

    @override
    def _complete(self, folder: Path, final: Path, progress: Progress) -> None:
        own = {path.relative_to(folder).as_posix(): path.stat().st_size for path in _files_of(folder)}
        mine = (secrets.token_hex(8), own) if self._is_first_here else None
        everyone: list[tuple[str, Mapping[str, int]] | None] = [None] * self._workers.size
        dist.all_gather_object(everyone, mine)
        parts = [rank for rank, one in enumerate(everyone) if one is not None]
        first = everyone[0]
        assert first is not None, "the first worker is the first of its machine"
        if not self._is_first_here:
            return
        if self._workers.is_first:
            self._job.write(folder / JOB_FILE)
            sizes = {name: size for one in everyone if one is not None for name, size in one[1].items()}
            sizes[JOB_FILE] = (folder / JOB_FILE).stat().st_size
            self._num_bytes = sum(own.values())
            whole = progress.model_copy(update={"file_bytes": dict(sorted(sizes.items()))})
            (folder / PROGRESS_FILE).write_text(whole.model_dump_json(indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)
        folder.rename(final)
        self._saves[final] = first[0], parts
        self._queue.submit(final)

    def _send(self, folder: Path) -> None:
        save, parts = self._saves[folder]
        self._there.put_part(save, self._workers.rank, folder)
        if self._workers.is_first:
            self._there.join(save, parts, folder, seconds=JOIN_SECONDS)
            self._there.prune(self._job.keep_checkpoints, self._best_name())
        # Read back and compared: this machine's copy has done what it was for, and what it had fetched before too.
        for stored in self._folder.glob(f"{STEP_PREFIX}*"):
            if stored.name <= folder.name:
                shutil.rmtree(stored, ignore_errors=True)

    @override
    def send_rest(self) -> None:
        if self._is_first_here:
            self._queue.drain()

    @override
    def drain(self) -> None:
        """Wait until the newest checkpoint is stored, which is nowhere whole before.

        Raises:
            StorageError: it could not be; each machine has its part of it.
        """
        failed = self._queue.drain() if self._is_first_here else {}
        newest = max(failed, default=None)
        is_newest = newest is not None and newest == max(self._saves)
        self._agree_on(failed[newest] if newest is not None and is_newest else None)

    def _agree_on(self, failure: StorageError | None) -> None:
        if self._workers.total([float(failure is not None)])[0]:
            raise failure or StorageError("Another worker says why the storage could not be used.")


def _is_first_in(folder: Path, workers: Workers) -> bool:
    """Whether this worker has the lowest rank of those whose output is the same folder of the same machine."""
    number = workers.total([float(secrets.randbits(32)) if workers.is_first else 0.0])[0]
    own = folder / f".here-{number:.0f}-{workers.rank:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    own.touch()
    workers.wait()
    is_first = own == min(folder.glob(f".here-{number:.0f}-*"))
    workers.wait()
    own.unlink()
    return is_first


def _files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
