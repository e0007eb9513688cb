"""The parts of a take: what each should say, how long it is, what was heard in it, and whether words are lost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from training.model.generation.finish_reason import FinishReason
from training.model.prompt.length import expected_seconds

TOO_SHORT_SHARE = 1 / 3
"""Of the time that this voice needs for the text. A take below it has not said the text."""

SHORT_SHARE = 0.75
"""The same for a part that has probably lost words. Sentences of the sample voices vary by a sixth of their middle."""

LOST_SHARE = 0.22
"""Of a part's letters. What a listener mishears hardly changes how much it hears; lost words do. Of 15 parts that the
embedded model spoke, whole ones lacked 0.17 at most, and those below `SHORT_SHARE` 0.26 to 0.62."""

_USUAL_PACE = 0.85
"""Of the time that `expected_seconds` gives: sentences of the sample voices have 0.67 to 0.96."""

_PACE_BOUNDS = (0.7, 1.3)
"""Times ordinary speech. A reference whose transcript is another's, or a voice that always loses words, has a pace that
nobody speaks at."""

_LEAST_SECONDS = 0.8
"""Of ordinary speech: a word or two may be said in almost no time, and say nothing about a pace."""

Doubt = Literal["short", "lost", "rambling"]


class HeardInPart(BaseModel):
    """What a listener heard.

    Attributes:
        text: empty where the listener was not sure of its words, only of how many they are.
        lost_share: of the text's letters that were not heard, 0 to 1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    listener: str
    lost_share: float


class TakePart(BaseModel):
    """One part of a text as it was spoken.

    Attributes:
        text: as far as it was spoken.
        start_seconds: in the take as the model spoke it, before it was made faster or slower.
        expected_seconds: what this voice needs for the text.
        heard: None where nobody listened who could be trusted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    seed: int
    finish_reason: FinishReason
    start_seconds: float
    seconds: float
    expected_seconds: float
    heard: HeardInPart | None = None

    @property
    def doubt(self) -> Doubt | None:
        """Why it should be listened to, and perhaps spoken again; None where nothing speaks against it."""
        if self.finish_reason is FinishReason.CANCELLED:
            return None
        if self.finish_reason is FinishReason.LENGTH:
            return "rambling"
        if self.heard is not None:
            return "lost" if self.heard.lost_share > LOST_SHARE else None
        is_short = self.expected_seconds >= _LEAST_SECONDS and self.seconds < SHORT_SHARE * self.expected_seconds
        return "short" if is_short else None


class Pace:
    """How fast a voice speaks, learned from its recording and from the parts it has spoken. Robust: a median."""

    def __init__(self, language: str, reference: tuple[str, float] | None = None) -> None:
        """Begin with what the recording says and its seconds, where that is known."""
        self._language, self._ratios = language, list[float]()
        if reference is not None:
            self.learn(*reference)

    def learn(self, text: str, seconds: float) -> None:
        """Take a text that was spoken into account."""
        ordinary = expected_seconds(text, self._language)
        if ordinary >= _LEAST_SECONDS:
            self._ratios.append(seconds / ordinary)

    def expected_seconds(self, text: str) -> float:
        """What the voice needs for a text."""
        return expected_seconds(text, self._language) * self.ratio

    @property
    def ratio(self) -> float:
        """Its time for a text over that of ordinary speech."""
        slowest, fastest = _PACE_BOUNDS[1], _PACE_BOUNDS[0]
        return min(max(statistics.median(self._ratios or [_USUAL_PACE]), fastest), slowest)


def said_so_far(text: str, share: float) -> str:
    """The words of a text that are spoken after a share of its time; marked where it goes on."""
    words = text.split(" ")
    spoken = words[: round(min(max(share, 0.0), 1.0) * len(words))]
    return text if len(spoken) == len(words) else " ".join([*spoken, "…"])


def doubtful(parts: Sequence[TakePart]) -> list[tuple[int, TakePart]]:
    """Those to listen to, with their numbers from 1."""
    return [(number, part) for number, part in enumerate(parts, 1) if part.doubt is not None]
