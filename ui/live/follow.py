"""Work that takes longer than an event should: done beside it, told step by step, and stopped by a button."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar, cast

from backend.background_tasks import BackgroundTask, BackgroundTasks, TaskCancelled, TaskState

LOOK_SECONDS = 0.2
"""Between two looks at how far it is; short, because the end should show at once."""

Shown = TypeVar("Shown")
Result = TypeVar("Result")


def follow(
    background_tasks: BackgroundTasks,
    key: str,
    what: str,
    work: Callable[[BackgroundTask], Result],
    show: Callable[[TaskState], Shown],
) -> Generator[Shown, None, Result]:
    """Begin work, yield what `show` makes of its state for as long as it is under way, and return its result.

    Whoever stops following, because the page was closed, cancels it. One of the same key that is under way is
    cancelled too.

    Raises:
        TaskCancelled: somebody did; what cannot be interrupted ends unheard.
        EncoreError: the work's own.
    """
    task = background_tasks.start(key, what, work, replaces=True)
    try:
        while not task.has_ended(LOOK_SECONDS):
            if task.is_cancelled():
                raise TaskCancelled("Stopped.")
            yield show(task.state)
        # It may have ended between two looks: who pressed Stop is not to see the next thing begin.
        if task.is_cancelled():
            raise TaskCancelled("Stopped.")
    finally:
        task.cancel()
    if task.error is not None:
        raise task.error
    return cast(Result, task.state.result)
