"""A listener's hold on a take that an engine is speaking."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.serving.engine.take_stream import Delivery
from training.model.decoding.frame_loop import FinishReason
from training.model.decoding.take import Take


class TakeHandle(Iterator[NDArray[np.float32]]):
    """Iterates over the float32 chunks of one take while it is made; safe to use from any one thread at a time.

    Dropping it, closing it or cancelling it frees the slot before the next frame. `finish_reason`, `codes` and the
    times are final once it is exhausted.
    """

    def __init__(self, delivery: Delivery, num_codebooks: int) -> None:
        self._delivery, self._num_codebooks = delivery, num_codebooks
        self.seed, self.sample_rate = delivery.seed, delivery.sample_rate
        # A listener who vanishes says nothing, but his handle is collected.
        weakref.finalize(self, delivery.cancel).atexit = False

    def __iter__(self) -> TakeHandle:
        return self

    def __next__(self) -> NDArray[np.float32]:
        """Wait for the next chunk. Raises EncoreError when the take failed."""
        chunk = self._delivery.next_chunk()
        if chunk is None:
            raise StopIteration
        return chunk

    def next_chunk(self, timeout_seconds: float | None = None) -> NDArray[np.float32] | None:
        """Like `next`, but None at the end, and TimeoutError when nothing came in time."""
        return self._delivery.next_chunk(timeout_seconds)

    def cancel(self) -> None:
        """End the take, from any thread; iteration ends at once. No harm after its end."""
        self._delivery.cancel()

    def close(self) -> None:
        """The same, under the name by which `contextlib.closing` calls it."""
        self.cancel()

    def listen(self) -> None:
        """Say that a take asked for as unheard is being played from now on."""
        self._delivery.is_heard = True

    @property
    def is_over(self) -> bool:
        """Whether the engine has made all of it, listened to or not."""
        return self._delivery.is_over

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it is being made."""
        return self._delivery.finish_reason

    @property
    def codes(self) -> Tensor:
        """Codes (frames, codebooks) so far."""
        codes = list(self._delivery.codes)
        return torch.stack(codes) if codes else torch.zeros(0, self._num_codebooks, dtype=torch.long)

    @property
    def num_underruns(self) -> int:
        """How often somebody who plays the chunks as they come had to wait."""
        return self._delivery.clock.num_underruns

    @property
    def max_pause_seconds(self) -> float:
        """The longest of these waits."""
        return self._delivery.clock.max_pause_seconds

    @property
    def seconds_to_first_audio(self) -> float:
        """From asking to the first chunk, the wait for a slot included; 0 before there is one."""
        heard = self._delivery.first_chunk_at
        return 0.0 if heard is None else heard - self._delivery.submitted

    @property
    def wall_seconds(self) -> float:
        """From asking to the last chunk; 0 while it is being made."""
        ended = self._delivery.ended
        return 0.0 if ended is None else ended - self._delivery.submitted

    def take(self) -> Take:
        """Wait for the whole take. Raises EncoreError when it failed."""
        chunks = list(self)
        return Take(
            waveform=np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.float32),
            codes=self.codes,
            sample_rate=self.sample_rate,
            seed=self.seed,
            finish_reason=self.finish_reason or FinishReason.CANCELLED,
            seconds_to_first_audio=self.seconds_to_first_audio,
            wall_seconds=self.wall_seconds,
        )
