"""What lets a run's own processes outlast a full disk: they wait for room before they write to the database."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.store.database import Database
from backend.store.errors import StoreError
from training.disk_room import wait_for_room

MIN_BYTES = 2 * 2**20
"""Free room without which nothing is written: more than a transaction takes."""

_RESERVE_BYTES = 512 * 2**10
"""Kept on the disk, and given up to say that it is full."""

_FOR_EVER = float("inf")


class DiskGuard:
    """Guards one run's writes; what it waits for is said in the run's row and events."""

    def __init__(
        self, database: Database, run_id: str, folder: RunFolder, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Wait in `database` from now on, as long as the caller wants it to."""
        self._rows, self._run_id, self._folder, self._is_wanted = RunTable(database), run_id, folder, is_wanted
        self._is_waiting = False
        self._reserve()
        database.before_writing = self.wait

    def wait(self, num_bytes: int = MIN_BYTES, what: str = "its database") -> None:
        """Return when there is room, or when it is not wanted any more; writing then says what is wrong."""
        if self._is_waiting:
            return  # what is said of the wait
        self._is_waiting = True
        try:
            wait_for_room(
                self._folder.path,
                num_bytes,
                what,
                self._tell,
                seconds=_FOR_EVER,
                gives_up=lambda: not self._is_wanted(),
            )
        finally:
            self._is_waiting = False

    def _tell(self, sentence: str) -> None:
        self._folder.reserve.unlink(missing_ok=True)
        # The last bytes may be gone again already; then the wait is said when it is over.
        with contextlib.suppress(StoreError):
            self._rows.add_event(self._run_id, sentence)
            self._rows.change(self._run_id, message=sentence)
        if sentence.startswith("There is room"):
            self._reserve()

    def _reserve(self) -> None:
        with contextlib.suppress(OSError):
            self._folder.reserve.write_bytes(os.urandom(_RESERVE_BYTES))
