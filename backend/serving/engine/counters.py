"""Counts kept by an engine's thread."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Tally:
    """Grows only; a count has one writer at a time, and any readers. See `EngineStatistics` for what is counted."""

    steps: int = 0
    frames: int = 0
    takes: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    refused: int = 0
    underruns: int = 0
    busy_seconds: float = 0.0

    @property
    def unfinished(self) -> int:
        """Takes asked for that are not over: spoken, or waiting."""
        return self.takes - self.finished - self.cancelled - self.failed
