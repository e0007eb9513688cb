"""Counts that all workers of a build share, in an actor of Ray."""

from __future__ import annotations

from typing import Any

import ray

from backend.dataset.build.progress import Outcome, StageCount, StageCounts
from backend.dataset.storage.stage_cache import Stage


class SharedCounts:
    """The same verbs, on counts in a Ray actor; travels to workers."""

    def __init__(self) -> None:
        # No core of its own: it answers in microseconds, and on two cores none is to spare.
        self._actor: Any = ray.remote(num_cpus=0)(StageCounts).remote()  # Any: Ray's handles do not know their class

    def add(self, stage: Stage, row: str, outcome: Outcome, audio_seconds: float = 0.0) -> bool:
        """See `StageCounts.add`."""
        return bool(ray.get(self._actor.add.remote(stage, row, outcome, audio_seconds)))

    def begin(self, stage: Stage) -> bool:
        """See `StageCounts.begin`."""
        return bool(ray.get(self._actor.begin.remote(stage)))

    def expect(self, stage: Stage, num_rows: int) -> None:
        """See `StageCounts.expect`."""
        ray.get(self._actor.expect.remote(stage, num_rows))

    def announce(self, stage: Stage, source: str, rows: frozenset[str]) -> None:
        """See `StageCounts.announce`."""
        ray.get(self._actor.announce.remote(stage, source, rows))

    def cancel(self) -> None:
        """See `StageCounts.cancel`."""
        ray.get(self._actor.cancel.remote())

    def all(self) -> list[StageCount]:
        """See `StageCounts.all`."""
        counts: list[StageCount] = ray.get(self._actor.all.remote())
        return counts


Counts = StageCounts | SharedCounts
