"""Counting what each stage has done, wherever its workers are, and telling them to stop."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from backend.dataset.stage_cache import STAGES, Stage

Outcome = Literal["worked", "reused", "failed"]


@dataclass(kw_only=True)
class StageCount:
    """Rows of one stage; a row that is done twice, because its worker died in between, counts once."""

    stage: Stage
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    num_total: int | None = None
    audio_seconds: float = 0.0
    started_at: float | None = None

    @property
    def num_done(self) -> int:
        """Rows that are finished, whatever became of them."""
        return len(self.outcomes)

    @property
    def num_reused(self) -> int:
        """Rows that were found ready."""
        return sum(outcome == "reused" for outcome in self.outcomes.values())

    @property
    def num_failed(self) -> int:
        """Rows that could not be done."""
        return sum(outcome == "failed" for outcome in self.outcomes.values())


class StageCounts:
    """Counts of all stages. The build has one of its own, or one in an actor that all workers reach."""

    def __init__(self) -> None:
        self._counts = {stage: StageCount(stage=stage) for stage in STAGES}
        self._is_cancelled = False

    def add(self, stage: Stage, row: str, outcome: Outcome, audio_seconds: float = 0.0) -> bool:
        """A row is done. Tells whether to go on."""
        count = self._counts[stage]
        if row not in count.outcomes:
            count.outcomes[row] = outcome
            if outcome == "worked":
                count.audio_seconds += audio_seconds
        return not self._is_cancelled

    def begin(self, stage: Stage) -> bool:
        """Work on a stage begins, if it has not before. Tells whether to go on."""
        count = self._counts[stage]
        count.started_at = count.started_at or time.time()
        return not self._is_cancelled

    def expect(self, stage: Stage, num_rows: int) -> None:
        """It is known now how many rows a stage will have."""
        self._counts[stage].num_total = num_rows

    def cancel(self) -> None:
        """Tell everybody who asks to stop."""
        self._is_cancelled = True

    def all(self) -> list[StageCount]:
        """The counts so far."""
        return list(self._counts.values())

    def restore(self, counts: Iterable[StageCount]) -> None:
        """Go on from counts that another object kept."""
        self._counts = {count.stage: count for count in counts}


class SharedCounts:
    """The same verbs, on counts that live in a Ray actor."""

    def __init__(self, actor: Any) -> None:  # Any: Ray's handles have no type of their class
        self._actor = actor

    def add(self, stage: Stage, row: str, outcome: Outcome, audio_seconds: float = 0.0) -> bool:
        """See `StageCounts.add`."""
        return bool(_get(self._actor.add.remote(stage, row, outcome, audio_seconds)))

    def begin(self, stage: Stage) -> bool:
        """See `StageCounts.begin`."""
        return bool(_get(self._actor.begin.remote(stage)))


def _get(reference: Any) -> Any:  # Any: what an actor answers is not typed
    import ray  # noqa: PLC0415 - seconds to load, and not needed where nothing is built

    return ray.get(reference)
