"""Takes that wait for a slot: a bounded line, the one that is needed first in front."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from backend.serving.delivery import Delivery
from backend.serving.errors import TooBusy
from training.model.frame_loop import FrameRequest
from training.model.take_request import VoicePrompt


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


class WaitingLine:
    """Where takes wait; thread-safe."""

    def __init__(self, most_waiting: int) -> None:
        self.most_waiting = most_waiting
        self._waiting: list[WaitingTake] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, take: WaitingTake, *, is_admitted: bool, retry_after_seconds: float) -> None:
        """Join the line.

        Args:
            take: who joins.
            is_admitted: part of a text that is being spoken already; not turned away.
            retry_after_seconds: what those who are turned away are told.

        Raises:
            TooBusy: the line is full.
        """
        with self._lock:
            if not is_admitted and len(self._waiting) >= self.most_waiting:
                raise TooBusy(
                    f"{len(self._waiting)} takes are waiting, and {self.most_waiting} are the most.",
                    retry_after_seconds=retry_after_seconds,
                )
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
