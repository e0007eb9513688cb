"""Takes that wait for a slot: clients in turn, and of each the one needed first at the front."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.serving.engine.take_stream import TakeStream
from training.model.generation.frame_loop import FrameRequest
from training.model.generation.take_request import VoicePrompt


@dataclass(frozen=True, kw_only=True, order=True)
class WaitingTake:
    """A take without a slot; ordered by `needed_at`, a `time.monotonic` time fixed when it is requested.

    Fixed, so that no take waits for ever: later requests have later deadlines.
    """

    needed_at: float
    number: int
    request: FrameRequest = field(compare=False)
    voice: VoicePrompt = field(compare=False)
    stream: TakeStream = field(compare=False)


class RequestQueue:
    """A priority queue of takes; thread-safe."""

    def __init__(self) -> None:
        self._waiting: list[WaitingTake] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, take: WaitingTake) -> None:
        """Insert a take by its deadline."""
        with self._lock:
            self._waiting.append(take)
            self._waiting.sort()

    def first(self, num_running: Mapping[str, int]) -> WaitingTake | None:
        """The next take to admit: of the client with the fewest running, the one needed first; None when empty."""
        with self._lock:
            return min(self._waiting, key=lambda take: (num_running.get(take.stream.client, 0), take), default=None)

    def remove(self, take: WaitingTake) -> None:
        """Take one out of the queue."""
        with self._lock:
            self._waiting.remove(take)

    def remove_unwanted(self) -> list[WaitingTake]:
        """Remove and return the takes that were cancelled."""
        # Asked without the lock: the answer comes from the client's code, which may be slow.
        unwanted = [take for take in tuple(self._waiting) if not take.stream.is_wanted]
        for take in unwanted:
            self.remove(take)
        return unwanted

    def remove_all(self) -> list[WaitingTake]:
        """Empty the queue, returning what was in it."""
        with self._lock:
            removed, self._waiting = self._waiting, []
        return removed
