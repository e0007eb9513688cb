"""One take's audio chunks on their way from the engine's thread to the client's."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from backend.serving.engine.take_timeline import TakeTimeline
from training.model.generation.finish_reason import FinishReason

_logger = logging.getLogger(__name__)


@dataclass
class PlaybackClock:
    """When a client that plays chunks as they arrive runs out of audio.

    Attributes:
        began: when the first chunk arrived, later by every pause since; None before it.
        seconds: of audio delivered.
        num_underruns: how often the next chunk came too late.
        max_pause_seconds: by how much, at worst.
    """

    began: float | None = None
    seconds: float = 0.0
    num_underruns: int = 0
    max_pause_seconds: float = 0.0

    @property
    def runs_dry_at(self) -> float:
        """A `time.monotonic` time; in the past before there was any audio."""
        return 0.0 if self.began is None else self.began + self.seconds

    def add(self, seconds: float, now: float) -> bool:
        """Count a chunk that has arrived; true if the player had run dry."""
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


class TakeStream(Iterator[NDArray[np.float32]]):
    """Iterates over the float32 chunks of one take while it is made; any one thread at a time may do so.

    Closing or cancelling it frees the slot before the next frame. Its results are final once it is exhausted.

    Attributes:
        seed: of the take.
        sample_rate: in Hz.
        is_live: a client plays the chunks while they are made.
        codes: each frame's codes (codebooks,) so far.
        clock: when a live client runs dry.
        submitted: `time.monotonic` time of the request.
        client: who asked for it.
        timeline: when what happened to it.
        on_end: called once, when the engine is done with it.
        put_at: `time.monotonic` time of its last chunk so far.
    """

    def __init__(
        self,
        seed: int,
        sample_rate: int,
        *,
        is_live: bool,
        cancelled: Callable[[], bool] | None = None,
        client: str = "",
    ) -> None:
        self.seed, self.sample_rate, self.is_live = seed, sample_rate, is_live
        self.codes: list[Tensor] = []
        self.clock = PlaybackClock()
        self.submitted = time.monotonic()
        self.timeline = TakeTimeline()
        self.client = client
        self.on_end: Callable[[], object] | None = None
        self.put_at: float | None = None
        self._first_chunk_at: float | None = None
        self._finish_reason: FinishReason | None = None
        self._is_cancelled, self._is_over, self._cancelled = False, False, cancelled
        self._chunks: deque[NDArray[np.float32]] = deque()
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    # The engine's side.

    @property
    def is_wanted(self) -> bool:
        """False once the take was cancelled."""
        if self._is_cancelled or self._cancelled is None:
            return not self._is_cancelled
        try:
            return not self._cancelled()
        except Exception:
            # The client's code in the engine's thread: it may end its own take, not all of them.
            _logger.exception("asking whether a take is still wanted failed")
            return False

    def put(self, chunk: NDArray[np.float32]) -> bool:
        """Hand over a chunk; true if a live client had run dry."""
        now = time.monotonic()
        with self._changed:
            self._first_chunk_at, self.put_at = self._first_chunk_at or now, now
            was_dry = self.clock.add(len(chunk) / self.sample_rate, now) and self.is_live
            self._chunks.append(chunk)
            self.timeline.add_audio()
            self._changed.notify_all()
        return was_dry

    def finish(self, reason: FinishReason, error: BaseException | None = None) -> None:
        """End the take; with an error, iteration raises it. Only the first end counts."""
        with self._changed:
            if not self._is_over:
                self._finish_reason, self._error, self._is_over = reason, error, True
                if self.on_end is not None:
                    self.on_end()
                self._changed.notify_all()

    @property
    def num_bytes(self) -> int:
        """Of audio that nobody has read yet."""
        with self._changed:
            return sum(chunk.nbytes for chunk in self._chunks)

    # The client's side.

    @property
    def is_over(self) -> bool:
        """True once the engine has made all of it, whether or not it was read."""
        return self._is_over

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it is being made, `cancelled` as soon as it was cancelled."""
        return self._finish_reason or (FinishReason.CANCELLED if self._is_cancelled else None)

    @property
    def seconds_to_first_audio(self) -> float:
        """From the request to the first chunk, the wait for a slot included; 0 before there is one."""
        return 0.0 if self._first_chunk_at is None else self._first_chunk_at - self.submitted

    def go_live(self) -> None:
        """Play from now on a take that was requested ahead."""
        self.is_live = True

    def close(self) -> None:
        """Cancel the take, from any thread; iteration ends at once. No harm after its end."""
        with self._changed:
            self._is_cancelled = True
            self._chunks.clear()
            self._changed.notify_all()

    def __next__(self) -> NDArray[np.float32]:
        """Wait for the next chunk. Raises EncoreError when the take failed."""
        with self._changed:
            while not self._chunks:
                if self._error is not None and not self._is_cancelled:
                    raise self._error
                if self._is_cancelled or self._is_over:
                    raise StopIteration
                self._changed.wait()
            return self._chunks.popleft()
