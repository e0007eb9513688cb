"""Brings what workers without the run's folder have stored into that folder, for who evaluates and exports it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from backend.runs.storage.run_folder import RunFolder
from training.errors import StorageError
from training.run_checkpoints import best_step, checkpoint_name, prune
from training.storage.objects import ObjectStore
from training.stored_checkpoints import StoredCheckpoints

_POLL_SECONDS = 2.0
_logger = logging.getLogger(__name__)


class CheckpointMirror:
    """Fetches checkpoints that were reported and are not here, one after another, in a thread of its own."""

    def __init__(self, store: ObjectStore, folder: RunFolder, num_kept: int, tell: Callable[[str], None]) -> None:
        """Keep so many in the folder; `tell` is told what cannot be fetched, at the next `take`."""
        self._stored, self._folder, self._num_kept = StoredCheckpoints(store, folder.path), folder, num_kept
        self._tell = tell
        self._lock, self._wanted, self._here = threading.Lock(), list[str](), list[str]()
        self._problem = ""
        self._told = ""
        self._marked: int | None = None
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None

    def is_here(self, name: str) -> bool:
        """Whether a checkpoint is in the run's folder."""
        return (self._folder.checkpoints / name).is_dir()

    def want(self, name: str) -> None:
        """Have a checkpoint fetched once it is stored."""
        with self._lock:
            self._wanted.append(name)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="checkpoint mirror", daemon=True)
                self._thread.start()

    def take(self) -> list[str]:
        """Names of those that have come since the last call."""
        with self._lock:
            come, self._here = self._here, []
            problem = self._problem
        if problem and problem != self._told:
            self._tell(problem)
            self._told = problem
        return come

    def finish(self) -> None:
        """Fetch what is stored and was not fetched yet; workers have ended.

        Raises:
            StorageError: the newest cannot be fetched.
        """
        self._has_ended.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            wanted, self._wanted = self._wanted, []
        for name in wanted:
            # One that is not stored now has been pruned, or its workers were lost while they sent it.
            self._fetch(name)

    def _work(self) -> None:
        while not self._has_ended.wait(_POLL_SECONDS):
            with self._lock:
                wanted = list(self._wanted)
            for name in wanted:
                try:
                    is_come = self._fetch(name)
                    problem = ""
                except StorageError as error:
                    _logger.warning("%s", error)
                    is_come, problem = False, str(error)
                with self._lock:
                    self._problem = problem
                    if is_come:
                        self._wanted.remove(name)
            self._mark_best()

    def _mark_best(self) -> None:
        """Let the workers, who prune what is stored, know which of it is the best."""
        best = best_step(self._folder.path)
        if best is None or best == self._marked:
            return
        try:
            self._stored.mark_best(checkpoint_name(best))
            self._marked = best
        except StorageError as error:
            _logger.warning("%s", error)

    def _fetch(self, name: str) -> bool:
        if not self._stored.fetch(name):
            return False
        with self._lock:
            self._here.append(name)
        prune(self._folder.path, self._num_kept)
        return True
