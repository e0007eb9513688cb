"""Fetching and reading a model while nobody waits for it: started by one call, watched and cancelled by others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from backend.errors import EncoreError, ModelError
from training.model.hub.hub import DownloadProgress

_logger = logging.getLogger(__name__)

Work = Callable[[Callable[[DownloadProgress], None], Callable[[], bool]], object]
"""Loads a model; given a callback for progress and one that says whether to stop."""


@dataclass(frozen=True, kw_only=True)
class LoadingState:
    """The loading under way, or how the last one ended.

    Attributes:
        name: the model asked for.
        is_running: false once it is loaded, has failed or was cancelled.
        progress: of the download; None while there is nothing to download, or not yet.
        bytes_at_start: what an earlier, interrupted download had left.
        download_seconds: since the download began.
        problem: why there is no model at its end, in words for the person; empty after success.
    """

    name: str
    is_running: bool = True
    progress: DownloadProgress | None = None
    bytes_at_start: int = 0
    download_seconds: float = 0.0
    problem: str = ""

    @property
    def seconds_left(self) -> float | None:
        """Estimate for the rest of the download, from its pace so far; None before there is a pace."""
        if self.progress is None or self.progress.bytes_done <= self.bytes_at_start or not self.download_seconds:
            return None
        pace = (self.progress.bytes_done - self.bytes_at_start) / self.download_seconds
        return (self.progress.bytes_total - self.progress.bytes_done) / pace


class ModelLoading:
    """Runs one loading at a time in a thread of its own, so that it outlives the page that asked for it."""

    def __init__(self) -> None:
        self.state: LoadingState | None = None
        self._cancelled = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, name: str, work: Work) -> None:
        """Begin, and return at once.

        Raises:
            ModelError: another one is under way.
        """
        with self._starting:
            if self.state is not None and self.state.is_running:
                raise ModelError(f"{self.state.name} is being loaded. Wait until it is there, or cancel it first.")
            self._cancelled.clear()
            self.state = LoadingState(name=name)
            self._thread = threading.Thread(target=self._run, args=(self.state, work), daemon=True, name="load-model")
            self._thread.start()

    def cancel(self) -> None:
        """Ask the one under way to stop; a download stops within a second, and goes on from there next time."""
        self._cancelled.set()

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Return when nothing is under way any more, or after the timeout."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _run(self, begun: LoadingState, work: Work) -> None:
        problem = "It could not be loaded because of a fault in Encore. The log has the details."
        try:
            work(self._follow, self._cancelled.is_set)
            problem = ""
        except EncoreError as error:
            problem = str(error)
        except Exception:
            # The edge of the thread: whoever watches must see it end, whatever happened.
            _logger.exception("loading %s failed", begun.name)
        finally:
            self.state = LoadingState(name=begun.name, is_running=False, problem=problem)

    def _follow(self, progress: DownloadProgress) -> None:
        state = self.state
        assert state is not None
        now = time.monotonic()
        if state.progress is None:
            self._download_began = now
            state = replace(state, bytes_at_start=progress.bytes_done)
        self.state = replace(state, progress=progress, download_seconds=now - self._download_began)
