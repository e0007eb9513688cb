"""The stages of a build, and what is counted of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Stage = Literal["decode", "transcribe", "cut", "tokenize"]
STAGES: tuple[Stage, ...] = ("decode", "transcribe", "cut", "tokenize")
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
        """Rows that are finished, with whatever outcome."""
        return len(self.outcomes)

    def count(self, outcome: Outcome) -> int:
        """Rows with this outcome."""
        return sum(found == outcome for found in self.outcomes.values())
