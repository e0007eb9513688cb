"""How fast an engine makes frames, measured while it speaks, and what a listener needs in hand before it plays."""

from __future__ import annotations

import math
from dataclasses import dataclass

from backend.serving.engine.running_take import LIVE_CHUNK_FRAMES

MAX_LEAD_SECONDS = 30.0
"""Longer nobody waits for the first sound; on a machine that would need it there are pauses."""

_MEMORY = 32
"""Measurements after which a new one counts for no less."""

_SPREADS = 4.0
"""Times the mean deviation above the mean, as TCP sets its timers (RFC 6298)."""


@dataclass(frozen=True, kw_only=True)
class FramePace:
    """What was measured of an engine lately.

    Attributes:
        frame_seconds: from one frame of a take to the next, with all that happens in between.
        late_seconds: by how much chunks come later than their frames alone would make them.
    """

    frame_seconds: float
    late_seconds: float


class Smoothed:
    """A mean that follows what is measured, and its mean deviation."""

    def __init__(self) -> None:
        self.mean = self.deviation = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        """Measure once more."""
        self._count = min(self._count + 1, _MEMORY)
        error = value - self.mean
        self.mean += error / self._count
        if self._count > 1:
            self.deviation += (abs(error) - self.deviation) / self._count


class PaceMeter:
    """Learns the pace of an engine, separately for each number of takes in its batch."""

    def __init__(self) -> None:
        self._frames: dict[int, Smoothed] = {}
        self._late = Smoothed()
        self._num_takes = 1

    def add_frame(self, num_takes: int, seconds: float) -> None:
        """A frame of so many takes was made, so long after the one before."""
        self._num_takes = num_takes
        self._frames.setdefault(num_takes, Smoothed()).add(seconds)

    def add_chunk(self, num_frames: int, seconds: float) -> None:
        """A take's chunk came so long after the one before."""
        if self._frames:
            self._late.add(seconds - num_frames * self._frame_seconds())

    def now(self) -> FramePace | None:
        """The pace at the present number of takes, or at the nearest that was measured; None before any was."""
        if not self._frames:
            return None
        late_seconds = max(0.0, self._late.mean + _SPREADS * self._late.deviation)
        return FramePace(frame_seconds=self._frame_seconds(), late_seconds=late_seconds)

    def _frame_seconds(self) -> float:
        measured = dict(self._frames)
        # Of two that are as near the one with more takes: better a lead too long than a pause.
        nearest = min(measured, key=lambda number: (abs(number - self._num_takes), -number))
        return measured[nearest].mean


def lead_seconds(
    pace: FramePace,
    remaining_seconds: float,
    *,
    sound_per_frame: float,
    held_seconds: float = 0.0,
    num_chunks: int = 0,
) -> float:
    """How much sound a listener should have in hand before it plays, so that it never waits for a chunk.

    Chunks grow by a plan that no load changes; this says how many of them to wait for. 0: the first that comes will do.

    Args:
        pace: of the engine.
        remaining_seconds: of sound that is still to be played, what is in hand included.
        sound_per_frame: seconds.
        held_seconds: of made sound that is not handed out yet.
        num_chunks: of the take that were played before.
    """
    sizes = _chunk_sizes(math.ceil(remaining_seconds / sound_per_frame), num_chunks)
    num_later = 0  # frames after the chunk that is looked at
    total, needed, lead = sum(sizes), -math.inf, 0.0
    for position in range(len(sizes) - 1, -1, -1):
        # Played from the end of this chunk on, all later ones come in time?
        made = total - num_later
        if needed > made * pace.frame_seconds:
            break
        lead = 0.0 if position == 0 else made * sound_per_frame - held_seconds
        # When this chunk is there, counted from the beginning, less the sound before it, which is being played then.
        before = made - sizes[position]
        arrives = made * pace.frame_seconds + pace.late_seconds
        needed = max(needed, arrives + held_seconds - before * sound_per_frame)
        num_later += sizes[position]
    return min(max(lead, 0.0), remaining_seconds, MAX_LEAD_SECONDS)


def _chunk_sizes(num_frames: int, num_chunks: int) -> list[int]:
    """The frames of each chunk to come."""
    sizes: list[int] = []
    while num_frames > 0:
        size = min(LIVE_CHUNK_FRAMES[min(num_chunks + len(sizes), len(LIVE_CHUNK_FRAMES) - 1)], num_frames)
        sizes.append(size)
        num_frames -= size
    return sizes
