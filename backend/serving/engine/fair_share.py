"""Who may come in where there is not room for all: nobody holds so much that others find nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from backend.serving.errors import EngineBusy

FIRST_GUESS_SECONDS = 2.0
"""How long a place is held, before anyone has given one back."""


class FairShare:
    """A number of places that clients hold while they are served or wait; may be used from any thread.

    A client alone may hold them all. As soon as there are others, whoever holds half of them gets no more; whoever
    holds fewer than an even share gets one even if all are taken, from a reserve as large again, so that nobody who
    was let in has to be sent away.
    """

    def __init__(self, num_places: int, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with all places free; `what` they are for is said to those who are refused."""
        self.num_places, self._what, self._clock = num_places, what, clock
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._sum_of_starts = 0.0
        self._mean_seconds: float | None = None

    def __len__(self) -> int:
        return self._held.total()

    def enter(self, client: str, *, is_promised: bool = False) -> Callable[[], None]:
        """Take a place; returns what gives it back, once.

        Args:
            client: who asks: a key, or an address.
            is_promised: take it in any case: it goes on with what was let in before.

        Raises:
            EngineBusy: this client holds its share; says when about another place will be free for it.
        """
        began = self._clock()
        with self._lock:
            if not is_promised and (excess := self._excess(client)):
                seconds = self._seconds_until(excess)
                held, total = self._held[client], self._held.total()
                own = f", {held} of them yours" if 0 < held < total else ""
                raise EngineBusy(
                    f"{total} {self._what}{own}; the limit is {self.num_places}.", retry_after_seconds=seconds
                )
            self._held[client] += 1
            self._sum_of_starts += began
        left = threading.Event()

        def leave() -> None:
            """Give it back."""
            with self._lock:
                if left.is_set():
                    return
                left.set()
                self._held[client] -= 1
                if not self._held[client]:
                    del self._held[client]
                self._sum_of_starts -= began
                seconds, mean = self._clock() - began, self._mean_seconds
                self._mean_seconds = seconds if mean is None else mean + (seconds - mean) / 8

        return leave

    def num_held(self, client: str) -> int:
        """How many a client holds."""
        with self._lock:
            return self._held[client]

    def _excess(self, client: str) -> int:
        """How many places have to be given back before this client gets one; 0 where it gets one now."""
        held, total = self._held[client], self._held.total()
        has_others = total > held
        # Of a single place there is no half.
        half = max(1, self.num_places // 2)
        if total < self.num_places and not (has_others and held >= half):
            return 0
        num_clients = len(self._held) + (held == 0)
        if has_others and held < max(1, self.num_places // num_clients) and total < 2 * self.num_places:
            return 0
        return max(1, held - half + 1) if has_others else max(1, total - self.num_places + 1)

    def _seconds_until(self, num_places: int) -> float:
        """When so many will have been given back, at the rate at which places are given back now."""
        total = self._held.total()
        mean = FIRST_GUESS_SECONDS if self._mean_seconds is None else self._mean_seconds
        if total:
            # Those who are still there have held theirs for this long already: with long texts nobody may have left.
            mean = max(mean, self._clock() - self._sum_of_starts / total)
        return mean * num_places / max(1, total)
