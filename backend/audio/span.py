"""A stretch of a recording: of speech, of a word, of a clip."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stretch of a recording, in seconds from its start."""

    start_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.end_seconds - self.start_seconds

    @property
    def middle_seconds(self) -> float:
        """The moment half way between start and end."""
        return (self.start_seconds + self.end_seconds) / 2

    def shifted(self, seconds: float) -> Self:
        """The same stretch, later by `seconds`."""
        return replace(self, start_seconds=self.start_seconds + seconds, end_seconds=self.end_seconds + seconds)

    def overlaps(self, other: Span) -> bool:
        """Whether the two share more than a moment."""
        return self.start_seconds < other.end_seconds and other.start_seconds < self.end_seconds
