"""When each thing happened to a take, for whoever wants to know where the time went."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class TakeTimeline:
    """Moments of one take in seconds since 1970, so that they mean the same in another process; None where not reached.

    Attributes:
        submitted: it was asked for; from then on it waits for a slot.
        admitted: it got one, and its prompt is read.
        prefilled: its prompt is read.
        first_frame: its first frame of codes is made.
        last_frame: the last one so far.
        first_audio: its first frame is decoded.
        last_audio: the last one so far.
        num_frames: made so far.
    """

    submitted: float = field(default_factory=time.time)
    admitted: float | None = None
    prefilled: float | None = None
    first_frame: float | None = None
    last_frame: float | None = None
    first_audio: float | None = None
    last_audio: float | None = None
    num_frames: int = 0

    def add_frame(self) -> None:
        """A frame was made."""
        self.last_frame = time.time()
        self.first_frame = self.first_frame or self.last_frame
        self.num_frames += 1

    def add_audio(self) -> None:
        """A chunk was decoded."""
        self.last_audio = time.time()
        self.first_audio = self.first_audio or self.last_audio
