"""Counting what each stage has done, wherever its workers are, and telling them to stop."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from backend.dataset.storage.stage_cache import STAGES, Stage

Outcome = Literal["worked", "reused", "failed"]

# Whose rows each stage makes: the next stage's total is known when the one before is through.
_SOURCES: dict[Stage, Stage] = {"transcribe": "decode", "tokenize": "cut"}


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
    """Counts of all stages. A build without anything to do has one of its own, else it lives in an actor."""

    def __init__(self) -> None:
        self._counts = {stage: StageCount(stage=stage) for stage in STAGES}
        self._announced: dict[Stage, dict[str, frozenset[str]]] = {stage: {} for stage in STAGES}
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
        """It is known how many rows a stage will have."""
        self._counts[stage].num_total = num_rows

    def announce(self, stage: Stage, source: str, rows: frozenset[str]) -> None:
        """A row of the stage before has made these for `stage`."""
        self._announced[stage][source] = rows
        before = self._counts[_SOURCES[stage]]
        if before.num_total is not None and len(before.outcomes) >= before.num_total:
            self._counts[stage].num_total = len(frozenset().union(*self._announced[stage].values()))

    def cancel(self) -> None:
        """Tell everybody who asks to stop."""
        self._is_cancelled = True

    def all(self) -> list[StageCount]:
        """The counts so far."""
        return list(self._counts.values())
