"""Work that takes longer than an event should: done in the background, shown step by step, stopped by a button."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from backend.background_tasks import BackgroundTask, BackgroundTasks, TaskCancelled, TaskState
from ui.words.words import say

POLL_SECONDS = 0.2
"""Short, because the end should show at once."""

Shown = TypeVar("Shown")
Result = TypeVar("Result")


def follow(
    background_tasks: BackgroundTasks[Any],
    key: str,
    what: str,
    work: Callable[[BackgroundTask[Any]], Result],
    show: Callable[[TaskState[Any]], Shown],
) -> Generator[Shown, None, Result]:
    """Start work, yield what `show` makes of its state while it is running, and return its result.

    Closing the generator, as happens when the page is closed, cancels it; so does another task of the same key.

    Raises:
        TaskCancelled: it was cancelled; work that cannot be interrupted goes on and its result is dropped.
        EncoreError: the work's own.
    """
    task = background_tasks.start(key, what, work, replaces=True)
    try:
        while not task.has_ended(POLL_SECONDS):
            if task.is_cancelled():
                raise TaskCancelled(say("voices.cancelled"))
            yield show(task.state)
        # It may have ended between two polls: after Stop was pressed the next step must not begin.
        if task.is_cancelled():
            raise TaskCancelled(say("voices.cancelled"))
    finally:
        task.cancel()
    if task.error is not None:
        raise task.error
    return cast(Result, task.state.result)


class StopFlags:
    """Stop buttons: a flag for each key that is speaking or waits for its turn, read before every frame."""

    def __init__(self) -> None:
        self._flags: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def begin(self, key: str) -> None:
        """Start afresh: what was stopped before stays stopped, what comes now is not."""
        with self._lock:
            self._flags[key] = threading.Event()

    def stop(self, key: str) -> None:
        """Stop what was begun, if anything."""
        with self._lock:
            flag = self._flags.get(key)
        if flag is not None:
            flag.set()

    @contextmanager
    def watch(self, key: str) -> Iterator[Callable[[], bool]]:
        """Whether what was begun is to stop; forgotten at the end of the block, unless another has begun since."""
        with self._lock:
            flag = self._flags.setdefault(key, threading.Event())
        try:
            yield flag.is_set
        finally:
            with self._lock:
                if self._flags.get(key) is flag:
                    del self._flags[key]
