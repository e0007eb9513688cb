"""Work that takes longer than an event should: done beside it, told step by step, and stopped by a button."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar, cast

from backend.background_tasks import Errand, ErrandCancelled, Errands, ErrandState

LOOK_SECONDS = 0.2
"""Between two looks at how far it is; short, because the end should show at once."""

Shown = TypeVar("Shown")
Result = TypeVar("Result")


def follow(
    errands: Errands, key: str, what: str, work: Callable[[Errand], Result], show: Callable[[ErrandState], Shown]
) -> Generator[Shown, None, Result]:
    """Begin work, yield what `show` makes of its state for as long as it is under way, and return its result.

    Whoever stops following, because the page was closed, cancels it. One of the same key that is under way is
    cancelled too.

    Raises:
        ErrandCancelled: somebody did; what cannot be interrupted ends unheard.
        EncoreError: the work's own.
    """
    errand = errands.start(key, what, work, replaces=True)
    try:
        while not errand.has_ended(LOOK_SECONDS):
            if errand.is_cancelled():
                raise ErrandCancelled("Stopped.")
            yield show(errand.state)
        # It may have ended between two looks: who pressed Stop is not to see the next thing begin.
        if errand.is_cancelled():
            raise ErrandCancelled("Stopped.")
    finally:
        errand.cancel()
    if errand.error is not None:
        raise errand.error
    return cast(Result, errand.state.result)
