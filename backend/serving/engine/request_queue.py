"""Takes that wait for a slot, the one that is needed first in front."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from backend.serving.engine.take_stream import Delivery
from training.model.decoding.frame_loop import FrameRequest
from training.model.decoding.take_request import VoicePrompt


@dataclass(frozen=True, kw_only=True, order=True)
class WaitingTake:
    """A take without a slot; ordered by `needed_at`, a `time.monotonic` time that is fixed when it is asked for.

    Fixed, because then everybody's turn comes: those who ask later are needed later.
    """

    needed_at: float
    number: int
    request: FrameRequest = field(compare=False)
    voice: VoicePrompt = field(compare=False)
    delivery: Delivery = field(compare=False)


class RequestQueue:
    """Where takes wait; thread-safe."""

    def __init__(self) -> None:
        self._waiting: list[WaitingTake] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, take: WaitingTake) -> None:
        """Join the line."""
        with self._lock:
            self._waiting.append(take)
            self._waiting.sort()

    def first(self) -> WaitingTake | None:
        """Who is next."""
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def remove(self, take: WaitingTake) -> None:
        """Leave the line."""
        with self._lock:
            self._waiting.remove(take)

    def take_unwanted(self) -> list[WaitingTake]:
        """Remove those nobody listens to any more, and say who they were."""
        # Asked without the lock: it is the listeners' code that answers, and they may take their time.
        unwanted = [take for take in tuple(self._waiting) if not take.delivery.is_wanted]
        for take in unwanted:
            self.remove(take)
        return unwanted

    def take_all(self) -> list[WaitingTake]:
        """Empty the line."""
        with self._lock:
            everybody, self._waiting = self._waiting, []
        return everybody
