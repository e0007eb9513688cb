"""A comparison: takes of the same text and seed, each under a letter, and the listener's vote."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from backend.comparisons.contenders import Contender
from backend.evaluation.scores import TakeScores
from training.model.generation.finish_reason import FinishReason

Letter = Literal["A", "B", "C"]
Verdict = Literal["A", "B", "C", "same", "bad"]

LETTERS: tuple[Letter, ...] = ("A", "B", "C")


class ComparedTake(BaseModel):
    """One side's take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    letter: Letter
    side: Contender
    seconds: float
    finish_reason: FinishReason
    gain_db: float
    """Gain that brings all takes to the same loudness."""
    scores: TakeScores | None = None
    """None as long as it has not been measured: that takes longer than speaking, and a vote needs none of it."""


class Comparison(BaseModel):
    """Takes to listen to, in the order of their letters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    made_at: datetime
    text: str
    language: str
    seed: int
    is_blind: bool
    """Whether the letters were assigned at random, and are revealed only after the vote."""
    takes: tuple[ComparedTake, ...] = Field(min_length=2, max_length=3)
    verdict: Verdict | None = None
    voted_at: datetime | None = None

    @property
    def is_revealed(self) -> bool:
        """Whether the listener may see which voice is which."""
        return not self.is_blind or self.verdict is not None

    @property
    def winner(self) -> ComparedTake | None:
        """The preferred take; None before the vote, and if the listener preferred none."""
        return next((take for take in self.takes if take.letter == self.verdict), None)
