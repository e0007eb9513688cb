"""What visitors have started on the Tune tab, until there is a run, and which of their pages know how it ended."""

from __future__ import annotations

from backend.background_tasks import BackgroundTasks, TaskCancelled

NEWS_SECONDS = 600.0
"""A start may fail while nobody has the page open: for so long, whoever comes back is told."""


class Starts(BackgroundTasks[str]):
    """The last start of each visitor, whose result is the id of the run; it stays known, for all pages of theirs."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, tuple[float, frozenset[str]]] = {}

    def is_cancelling(self, visitor: str) -> bool:
        """Whether the start that is under way is about to stop."""
        task = self._tasks.get(visitor)
        return task is not None and task.state.is_running and task.is_cancelled()

    def was_cancelled(self, visitor: str) -> bool:
        """Whether the last one ended because it was told to; one that fails for a reason of its own was not."""
        task = self._tasks.get(visitor)
        return task is not None and isinstance(task.error, TaskCancelled)

    def tell(self, visitor: str, session: str) -> bool:
        """Note that a page shows how the last start ended; returns whether it does so for the first time."""
        state = self.state(visitor)
        if state is None or state.is_running:
            return False
        told = self._told_of(visitor)
        # Those of visitors that are forgotten go as well.
        self._told = {one: known for one, known in self._told.items() if self.state(one) is not None}
        self._told[visitor] = state.started_at, told | {session}
        return session not in told

    def is_news(self, visitor: str) -> bool:
        """Whether a page that is opened now has something to show: a start under way, a run that none of the visitor's
        pages has led to, or why there is none. The latter may have been told to a page that was just being closed.
        """
        state = self.state(visitor)
        if state is None or state.is_running:
            return state is not None
        if state.result is not None:
            return not self._told_of(visitor)
        return (state.seconds_since_end or 0.0) < NEWS_SECONDS

    def _told_of(self, visitor: str) -> frozenset[str]:
        """The pages that have shown how the last start ended."""
        state = self.state(visitor)
        started_at, told = self._told.get(visitor, (None, frozenset()))
        return told if state is not None and state.started_at == started_at else frozenset()
