"""Uploads beside other work: one at a time in the background, and a bound on how many wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from training.errors import StorageError

MAX_WAITING = 2
"""Folders that wait while another one is sent: a storage that is slower than training must not fill the disk."""


class UploadQueue:
    """Hands folders to a thread of its own, which sends one after another; a folder that failed stays on the disk."""

    def __init__(
        self, send: Callable[[Path], None], tell: Callable[[str], None], *, max_waiting: int = MAX_WAITING
    ) -> None:
        """Send with `send`, which raises StorageError, and `tell` of what failed and of waiting, in sentences."""
        self._send, self._tell, self._max_waiting = send, tell, max_waiting
        self._changed = threading.Condition()
        self._waiting: deque[Path] = deque()
        self._current: Path | None = None
        self._failed: dict[Path, StorageError] = {}
        self._thread: threading.Thread | None = None

    def submit(self, folder: Path) -> None:
        """Have a folder sent; returns at once unless too many wait, and then when one of them was sent or failed."""
        with self._changed:
            if len(self._waiting) >= self._max_waiting:
                self._tell(f"The storage is slower than training, which waits until {self._waiting[0].name} is sent.")
                self._changed.wait_for(lambda: len(self._waiting) < self._max_waiting or self._thread is None)
            self._waiting.append(folder)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="uploads", daemon=True)
                self._thread.start()

    def is_pending(self, folder: Path) -> bool:
        """Whether a folder still has to be sent, and must stay as it is; one that failed may be tried again."""
        with self._changed:
            return folder == self._current or folder in self._waiting

    def drain(self) -> dict[Path, StorageError]:
        """Wait until nothing is left to send; returns those that failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._thread is None)
            return dict(self._failed)

    def _work(self) -> None:
        try:
            while (folder := self._next()) is not None:
                self._send_one(folder)
        finally:
            # Also where it ends with a fault of ours, which the thread's own report tells of.
            with self._changed:
                if self._thread is threading.current_thread():
                    self._end()

    def _next(self) -> Path | None:
        with self._changed:
            if not self._waiting:
                # Under the same lock: what is submitted from now on begins another thread.
                self._end()
                return None
            self._current = self._waiting.popleft()
            self._changed.notify_all()
            return self._current

    def _end(self) -> None:
        self._thread = self._current = None
        self._changed.notify_all()

    def _send_one(self, folder: Path) -> None:
        failure: StorageError | None = None
        try:
            self._send(folder)
        except StorageError as error:
            failure = error
            self._tell(f"{folder.name} was not uploaded and stays in {folder.parent}. {error}")
        with self._changed:
            self._current = None
            self._failed.pop(folder, None)
            if failure is not None:
                self._failed[folder] = failure
