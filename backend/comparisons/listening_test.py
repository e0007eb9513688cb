"""A listening test: the same voices on one sentence after another, the next ones made while one listens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from backend.comparisons.comparison import Comparison
from backend.comparisons.errors import ComparisonError
from backend.comparisons.make_comparison import ComparisonOrder, ComparisonProgress, FinishedComparison

NUM_AHEAD = 2
"""Comparisons that are made before they are needed: voting takes less time than speaking now and then, and who stops
early leaves little behind."""

_POLL_SECONDS = 0.2


class ListeningTest:
    """Comparisons in a fixed order, each with its vote; made by one thread, voted on by others.

    Attributes:
        orders: one for each sentence.
        progress: of the comparison that is being made; None between two.
    """

    def __init__(self, orders: Sequence[ComparisonOrder]) -> None:
        """Make nothing yet. Raises ComparisonError without a sentence, EncoreError for one that cannot be compared."""
        if not orders:
            raise ComparisonError("There is no text to speak. Enter at least one sentence.")
        for order in orders:
            order.check()
        self.orders = tuple(orders)
        self.progress: ComparisonProgress | None = None
        self._made: list[FinishedComparison] = []
        self._voted: dict[str, Comparison] = {}
        self._measured: set[str] = set()
        self._is_ended = False
        self._changed = threading.Condition()
        self._making = threading.Lock()

    @property
    def made(self) -> tuple[FinishedComparison, ...]:
        """All that can be listened to, in order."""
        return tuple(self._made)

    @property
    def voted(self) -> tuple[Comparison, ...]:
        """Those with a vote, in order."""
        return tuple(self._voted[one.comparison.id] for one in self.made if one.comparison.id in self._voted)

    @property
    def current(self) -> FinishedComparison | None:
        """The one to vote on; None while it is being made, and once it is over."""
        if self.is_over:
            return None
        return next((one for one in self.made if one.comparison.id not in self._voted), None)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to vote on."""
        return self._is_ended or len(self._voted) == len(self.orders)

    def count(self, voted: Comparison) -> None:
        """Note the vote on one of them; the next one is current."""
        with self._changed:
            self._voted[voted.id] = voted
            self._changed.notify_all()

    def end(self) -> None:
        """Leave it at the votes there are."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def make(
        self,
        compare: Callable[[ComparisonOrder], Iterable[ComparisonProgress | FinishedComparison]],
        measure: Callable[[FinishedComparison], Comparison],
        cancelled: Callable[[], bool],
    ) -> None:
        """Make one after another, a few ahead of the votes, and measure meanwhile what has been voted on.

        Returns when all are made and measured, or it is over or cancelled. What was cancelled is gone on with by the
        next call, which waits for the one before.

        Raises:
            EncoreError: one could not be made; those before it stay.
        """
        while not self._making.acquire(timeout=_POLL_SECONDS):
            if cancelled():
                return
        try:
            self._make(compare, measure, cancelled)
        finally:
            self._making.release()

    def _make(
        self,
        compare: Callable[[ComparisonOrder], Iterable[ComparisonProgress | FinishedComparison]],
        measure: Callable[[FinishedComparison], Comparison],
        cancelled: Callable[[], bool],
    ) -> None:
        while (number := len(self._made)) < len(self.orders):
            while number > len(self._voted) + NUM_AHEAD and not self.is_over and not cancelled():
                if not self._measure_one(measure):
                    self._await_vote()
            if self.is_over or cancelled():
                return
            for step in compare(self.orders[number]):
                if isinstance(step, FinishedComparison):
                    self._made.append(step)
                    self.progress = None
                else:
                    self.progress = step
            if len(self._made) == number:
                return  # it was cancelled
        while not cancelled() and self._measure_one(measure):
            pass

    def _await_vote(self) -> None:
        with self._changed:
            self._changed.wait(_POLL_SECONDS)

    def _measure_one(self, measure: Callable[[FinishedComparison], Comparison]) -> bool:
        """Measure the first that has not been; returns whether there was one."""
        made = next((one for one in self.made if one.comparison.id not in self._measured), None)
        if made is None:
            return False
        measured = measure(made)
        with self._changed:
            self._measured.add(measured.id)
            # It may have been voted on meanwhile, or before: the vote stays what it is.
            if (voted := self._voted.get(measured.id)) is not None:
                self._voted[measured.id] = voted.model_copy(update={"takes": measured.takes})
        return True
