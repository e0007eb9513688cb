"""What passes between the engine and whoever listens to one of its takes."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from training.model.decoding.frame_loop import FinishReason

_logger = logging.getLogger(__name__)


@dataclass
class PlaybackClock:
    """When a listener who plays chunks as they arrive runs out of sound.

    Attributes:
        began: when the first chunk arrived, later by every pause since; None before it.
        seconds: of sound delivered.
        num_underruns: how often the next chunk came too late.
        max_pause_seconds: by how much, at worst.
    """

    began: float | None = None
    seconds: float = 0.0
    num_underruns: int = 0
    max_pause_seconds: float = 0.0

    @property
    def runs_dry_at(self) -> float:
        """A `time.monotonic` time; in the past before there was any sound."""
        return 0.0 if self.began is None else self.began + self.seconds

    def add(self, seconds: float, now: float) -> bool:
        """A chunk has arrived; whether the listener had run dry."""
        if self.began is None:
            self.began = now
        pause = now - self.runs_dry_at
        self.seconds += seconds
        # The first chunk always arrives at the moment it is needed.
        if pause <= 0:
            return False
        self.began += pause
        self.num_underruns += 1
        self.max_pause_seconds = max(self.max_pause_seconds, pause)
        return True


class Delivery:
    """One take's chunks on their way from the engine's thread to a listener's."""

    def __init__(
        self, seed: int, sample_rate: int, *, is_heard: bool, cancelled: Callable[[], bool] | None = None
    ) -> None:
        self.seed, self.sample_rate, self.is_heard = seed, sample_rate, is_heard
        self.codes: list[Tensor] = []
        self.clock = PlaybackClock()
        self.submitted = time.monotonic()
        self.first_chunk_at: float | None = None
        self.ended: float | None = None
        self._finish_reason: FinishReason | None = None
        self._cancelled, self._asks = False, cancelled
        self._chunks: deque[NDArray[np.float32]] = deque()
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    # The engine's side.

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still listens."""
        if self._cancelled or self._asks is None:
            return not self._cancelled
        try:
            return not self._asks()
        except Exception:
            # The listener's code in the engine's thread: it may end its own take, not everybody's.
            _logger.exception("asking whether a take is still wanted failed")
            return False

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.ended is not None

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; cancelled as soon as its listener has said so."""
        return self._finish_reason or (FinishReason.CANCELLED if self._cancelled else None)

    def put(self, chunk: NDArray[np.float32]) -> bool:
        """Hand over a chunk; whether a listener had run dry."""
        now = time.monotonic()
        with self._changed:
            self.first_chunk_at = self.first_chunk_at or now
            was_dry = self.clock.add(len(chunk) / self.sample_rate, now) and self.is_heard
            self._chunks.append(chunk)
            self._changed.notify_all()
        return was_dry

    def finish(self, reason: FinishReason) -> None:
        """Nothing more will come, because the take is over."""
        self._end(reason, None)

    def fail(self, error: BaseException) -> None:
        """Nothing more will come, because something went wrong."""
        self._end(FinishReason.CANCELLED, error)

    def _end(self, reason: FinishReason, error: BaseException | None) -> None:
        with self._changed:
            if self.ended is not None:
                return
            self._finish_reason, self._error, self.ended = reason, error, time.monotonic()
            self._changed.notify_all()

    # The listener's side.

    def cancel(self) -> None:
        """Say that nobody listens any more; the slot is free before the next frame."""
        with self._changed:
            self._cancelled = True
            self._chunks.clear()
            self._changed.notify_all()

    def next_chunk(self, timeout_seconds: float | None = None) -> NDArray[np.float32] | None:
        """Wait for a chunk; None after the last one, or at once after `cancel`.

        Raises:
            EncoreError: the take failed.
            TimeoutError: nothing came in time.
        """
        with self._changed:
            while not self._chunks:
                if self._error is not None and not self._cancelled:
                    raise self._error
                if self._cancelled or self.ended is not None:
                    return None
                if not self._changed.wait(timeout_seconds):
                    raise TimeoutError
            return self._chunks.popleft()
