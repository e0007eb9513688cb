"""Work of some seconds or minutes in a thread of its own: started by one call, watched and cancelled by others.

For work that may be lost when the program ends. Builds and fine-tunes, which must outlast it, are processes.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from backend.errors import EncoreError

_logger = logging.getLogger(__name__)

_MAX_REMEMBERED = 200

Result = TypeVar("Result")


class TaskBusy(EncoreError):
    """A task of the same key is running already."""


class TaskCancelled(EncoreError):
    """The user stopped it."""


@dataclass(frozen=True, kw_only=True)
class TaskState(Generic[Result]):
    """A task that is running, or how it ended.

    Attributes:
        what: what it does, as part of a sentence.
        num_done: of `num_total`, in the task's own unit; a total of 0 means that there is nothing to count.
        num_at_start: of these, done before it began, such as the bytes of an interrupted download.
        counting_since: when it first reported; None before that.
        detail: what it is doing just now, such as the file it downloads.
        ended_at: on the same clock as `started_at`; None while it is running.
        problem: why it has no result, in words for the user; empty after success.
        result: what the work returned; None while it is running and after a failure.
    """

    what: str
    is_running: bool = True
    num_done: int = 0
    num_total: int = 0
    num_at_start: int = 0
    counting_since: float | None = None
    detail: str = ""
    started_at: float = field(default_factory=time.monotonic)
    ended_at: float | None = None
    problem: str = ""
    result: Result | None = None

    @property
    def seconds_since_end(self) -> float | None:
        """How long ago it ended; None while it is running."""
        return time.monotonic() - self.ended_at if self.ended_at is not None else None

    @property
    def seconds_so_far(self) -> float:
        """Time elapsed so far, or in total once it has ended."""
        return (self.ended_at if self.ended_at is not None else time.monotonic()) - self.started_at

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the rate since the first report; None until there is one."""
        done_since = self.num_done - self.num_at_start
        if self.counting_since is None or done_since <= 0:
            return None
        return (time.monotonic() - self.counting_since) * (self.num_total - self.num_done) / done_since


class BackgroundTask(Generic[Result]):
    """Handed to the work, which reports its progress to it and asks it whether to stop.

    Attributes:
        state: progress, and the result at the end.
        error: why it has no result; None while it is running and after success.
    """

    def __init__(self, what: str) -> None:
        self.state: TaskState[Result] = TaskState(what=what)
        self.error: EncoreError | None = None
        self._cancelled = threading.Event()
        self._ended = threading.Event()

    def report(self, num_done: int, num_total: int) -> None:
        """Report progress. Raises TaskCancelled when the work should stop."""
        self.tell(num_done, num_total)
        if self.is_cancelled():
            raise TaskCancelled("Stopped.")

    def tell(self, num_done: int, num_total: int, detail: str = "") -> None:
        """Report progress of work that checks `is_cancelled` itself."""
        if self.state.counting_since is None:
            self.state = replace(self.state, num_at_start=num_done, counting_since=time.monotonic())
        self.state = replace(self.state, num_done=num_done, num_total=num_total, detail=detail)

    def is_cancelled(self) -> bool:
        """Whether the work should stop."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Ask the work to stop."""
        self._cancelled.set()

    def has_ended(self, within_seconds: float | None = 0.0) -> bool:
        """Whether it has ended; waits for that up to the given time, None without limit."""
        return self._ended.wait(within_seconds)

    def run(self, work: Callable[[BackgroundTask[Result]], Result]) -> None:
        """Do the work in this thread and record how it ended, whatever happens."""
        result: Result | None = None
        error: EncoreError | None = EncoreError(
            "It failed because of a fault in Encore. The program's log has the details."
        )
        try:
            result = work(self)
            error = None
        except EncoreError as expected:
            error = expected
        except Exception:
            # The edge of the thread: whoever watches must see it end, whatever happened.
            _logger.exception("%s failed", self.state.what)
        finally:
            self.error = error
            problem = str(error) if error is not None else ""
            self.state = replace(
                self.state, is_running=False, ended_at=time.monotonic(), problem=problem, result=result
            )
            self._ended.set()


class BackgroundTasks(Generic[Result]):
    """One task at a time for each key; the last one of each key is remembered until another one starts."""

    def __init__(self) -> None:
        self._tasks: dict[str, BackgroundTask[Result]] = {}
        self._lock = threading.Lock()

    def start(
        self, key: str, what: str, work: Callable[[BackgroundTask[Result]], Result], *, replaces: bool = False
    ) -> BackgroundTask[Result]:
        """Start the work and return at once with the task to watch.

        Args:
            key: what `state`, `cancel` and the others find it by.
            what: what it does, as part of a sentence.
            work: returns the result; the user reads the message of an EncoreError it raises.
            replaces: cancel and forget a running task of the same key.

        Raises:
            TaskBusy: a task of the same key is running.
        """
        task: BackgroundTask[Result] = BackgroundTask(what)
        with self._lock:
            before = self._tasks.get(key)
            if before is not None and before.state.is_running:
                if not replaces:
                    raise TaskBusy(f"This is already running: {before.state.what}. Wait for it, or stop it.")
                before.cancel()
            # Moved to the end: the oldest are forgotten first.
            self._tasks.pop(key, None)
            self._tasks[key] = task
            self._forget_oldest()
        # In a copy of the caller's context: what the work says is in the language of whoever asked for it.
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(task.run, work), daemon=True, name=f"task {key[:40]}").start()
        return task

    def state(self, key: str) -> TaskState[Result] | None:
        """State of the last task of this key; None if there was none."""
        task = self._tasks.get(key)
        return task.state if task is not None else None

    def cancel(self, key: str) -> None:
        """Ask the running task of this key to stop, if there is one."""
        task = self._tasks.get(key)
        if task is not None:
            task.cancel()

    def wait(self, key: str, timeout_seconds: float | None = None) -> None:
        """Return when the last task of this key has ended, or after the timeout."""
        task = self._tasks.get(key)
        if task is not None:
            task.has_ended(timeout_seconds)

    def forget(self, key: str) -> None:
        """Drop the result of a task that has ended."""
        with self._lock:
            task = self._tasks.get(key)
            if task is not None and not task.state.is_running:
                del self._tasks[key]

    def _forget_oldest(self) -> None:
        ended = [key for key, task in self._tasks.items() if not task.state.is_running]
        for key in ended[: max(0, len(self._tasks) - _MAX_REMEMBERED)]:
            del self._tasks[key]
