"""Work of some seconds or minutes that nobody should wait for: begun by one call, watched and cancelled by others.

For what is lost without harm when the program ends. Builds and fine-tunes, which must outlast it, are processes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from backend.errors import EncoreError

_logger = logging.getLogger(__name__)

_MAX_REMEMBERED = 200


class TaskRefused(EncoreError):
    """The same is under way already."""


class TaskCancelled(EncoreError):
    """A person stopped it."""


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """An task under way, or how it ended.

    Attributes:
        what: it does, as part of a sentence.
        num_done: of `num_total`, in whatever it counts; a total of 0 means that there is nothing to count.
        ended_at: on the same clock as `started_at`; None while it is under way.
        problem: why it has no result, in words for the person; empty after success.
        result: what it found; None while it is under way.
    """

    what: str
    is_running: bool = True
    num_done: int = 0
    num_total: int = 0
    started_at: float = field(default_factory=time.monotonic)
    ended_at: float | None = None
    problem: str = ""
    result: object = None

    @property
    def seconds_since_end(self) -> float | None:
        """How long ago it ended; None while it is under way."""
        return time.monotonic() - self.ended_at if self.ended_at is not None else None

    @property
    def seconds_so_far(self) -> float:
        """How long it has taken up to now, or in all."""
        return (self.ended_at if self.ended_at is not None else time.monotonic()) - self.started_at

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the pace so far; None before there is one."""
        if not self.num_done or not self.num_total:
            return None
        return (time.monotonic() - self.started_at) * (self.num_total - self.num_done) / self.num_done


class BackgroundTask:
    """What the work is given, to tell how far it is and to learn that it should stop.

    Attributes:
        state: how it stands.
        error: why it has no result; None while it is under way and after success.
    """

    def __init__(self, state: TaskState) -> None:
        self.state = state
        self.error: EncoreError | None = None
        self._cancelled = threading.Event()
        self._ended = threading.Event()

    def report(self, num_done: int, num_total: int) -> None:
        """Tell how far it is. Raises TaskCancelled when it should stop."""
        self.tell(num_done, num_total)
        if self.is_cancelled():
            raise TaskCancelled("Stopped.")

    def tell(self, num_done: int, num_total: int) -> None:
        """Tell how far it is, of work that looks by itself whether it should stop."""
        self.state = replace(self.state, num_done=num_done, num_total=num_total)

    def is_cancelled(self) -> bool:
        """Whether it should stop."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Ask it to stop."""
        self._cancelled.set()

    def has_ended(self, within_seconds: float = 0.0) -> bool:
        """Whether it has, or does so before that time is over."""
        return self._ended.wait(within_seconds)

    def end(self, result: object, error: EncoreError | None) -> None:
        """Say what it came to."""
        self.error = error
        self.state = replace(
            self.state,
            is_running=False,
            ended_at=time.monotonic(),
            problem=str(error) if error is not None else "",
            result=result,
        )
        self._ended.set()


class BackgroundTasks:
    """One task at a time for each key; the last one of each is remembered until another begins."""

    def __init__(self) -> None:
        self._errands: dict[str, BackgroundTask] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()

    def start(
        self, key: str, what: str, work: Callable[[BackgroundTask], object], *, replaces: bool = False
    ) -> BackgroundTask:
        """Begin, and return at once with what can be watched.

        Args:
            key: whose state this is to be.
            what: it does, as part of a sentence.
            work: returns the result; an EncoreError it raises is what the person reads.
            replaces: cancel and forget one of the same key that is under way.

        Raises:
            TaskRefused: one of the same key is under way.
        """
        task = BackgroundTask(TaskState(what=what))
        with self._lock:
            before = self._errands.pop(key, None)
            if before is not None and before.state.is_running:
                if not replaces:
                    self._errands[key] = before
                    raise TaskRefused(f"This is under way already: {before.state.what}. Wait for it, or stop it.")
                before.cancel()
            self._errands[key] = task
            self._forget_oldest()
            thread = threading.Thread(target=_run, args=(task, work), daemon=True, name=f"task {key[:40]}")
            self._threads[key] = thread
        thread.start()
        return task

    def state(self, key: str) -> TaskState | None:
        """How the last task of this key stands; None if there was none."""
        task = self._errands.get(key)
        return task.state if task is not None else None

    def cancel(self, key: str) -> None:
        """Ask the one under way to stop, if there is one."""
        task = self._errands.get(key)
        if task is not None:
            task.cancel()

    def wait(self, key: str, timeout_seconds: float | None = None) -> None:
        """Return when the last one of this key has ended, or after the timeout."""
        thread = self._threads.get(key)
        if thread is not None:
            thread.join(timeout_seconds)

    def forget(self, key: str) -> None:
        """Drop the result of one that has ended."""
        with self._lock:
            task = self._errands.get(key)
            if task is not None and not task.state.is_running:
                del self._errands[key]
                self._threads.pop(key, None)

    def _forget_oldest(self) -> None:
        ended = [key for key, task in self._errands.items() if not task.state.is_running]
        for key in ended[: max(0, len(self._errands) - _MAX_REMEMBERED)]:
            del self._errands[key]
            self._threads.pop(key, None)


def _run(task: BackgroundTask, work: Callable[[BackgroundTask], object]) -> None:
    result: object = None
    error: EncoreError | None = EncoreError(
        "It failed because of a fault in Encore. The program's log has the details."
    )
    try:
        result = work(task)
        error = None
    except EncoreError as expected:
        error = expected
    except Exception:
        # The edge of the thread: whoever watches must see it end, whatever happened.
        _logger.exception("%s failed", task.state.what)
    finally:
        task.end(result, error)
