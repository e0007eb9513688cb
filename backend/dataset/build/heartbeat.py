"""The heartbeat of a build: twice a second its counts go to the database, and a request to cancel comes back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from backend.dataset.build.progress import StageCounts
from backend.dataset.errors import BuildCancelled
from backend.dataset.storage.build_table import BuildTable
from backend.store.errors import StoreError

_BEAT_SECONDS = 0.5


class BuildHeartbeat:
    """Beats in a thread of its own while the block lasts."""

    def __init__(self, name: str, builds: BuildTable) -> None:
        self._name = name
        self._builds = builds
        self._counts: StageCounts | None = None
        self._notice = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="dataset-pulse")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if error is None:
            self.beat()

    def follow(self, counts: StageCounts | None) -> None:
        """Report these counts from now on; None stops reporting counts."""
        with self._lock:
            self._counts = counts

    @property
    def is_cancelled(self) -> bool:
        """Whether the build was asked to stop."""
        return self._cancelled.is_set()

    def note(self, notice: str) -> None:
        """Show something about the build that is worth knowing."""
        self._notice = notice
        self._builds.note(self._name, notice)

    @contextlib.contextmanager
    def noting(self, notice: str) -> Iterator[None]:
        """Show something for a block, and then again what was shown before."""
        before = self._notice
        self.note(notice)
        try:
            yield
        finally:
            self.note(before)

    def beat(self) -> None:
        """Report now."""
        with self._lock:
            found = self._counts.all() if self._counts is not None else []
            # On a full disk nothing can be written for a while; the build reports that by itself.
            with contextlib.suppress(StoreError):
                if self._builds.beat(self._name, found):
                    self._cancelled.set()
                    if self._counts is not None:
                        self._counts.cancel()

    def stop_if_cancelled(self) -> None:
        """Raise BuildCancelled if the build was asked to stop."""
        self.beat()
        if self.is_cancelled:
            raise BuildCancelled("The build was cancelled. What it had finished is kept; build again to resume.")

    def _run(self) -> None:
        while not self._ended.wait(_BEAT_SECONDS):
            self.beat()
