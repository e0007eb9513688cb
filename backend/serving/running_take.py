"""A take in a slot: which of its frames wait to become sound, and when they should."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from backend.serving.delivery import Delivery
from training.model.frame_loop import FinishReason
from training.model.take import CHUNK_FRAMES, UNHEARD_CHUNK_FRAMES

NEVER = float("inf")


@dataclass(eq=False)
class RunningTake:
    """What the engine keeps of a take while it has a slot.

    Attributes:
        slot: where it is decoded.
        delivery: where its chunks go.
        waiting: frames that are not sound yet.
        num_chunks: delivered so far.
        reason: why it has ended; None while frames are still coming.
        is_prepared: whether its decoder is behind the reference.
    """

    slot: int
    delivery: Delivery
    waiting: list[Tensor] = field(default_factory=list)
    num_chunks: int = 0
    reason: FinishReason | None = None
    is_prepared: bool = True

    @property
    def needed_at(self) -> float:
        """When a listener runs dry; long ago before the first chunk, never where nobody listens."""
        return self.delivery.clock.runs_dry_at if self.delivery.is_heard else NEVER

    def next_frames(self) -> int:
        """Frames in its next chunk, as far as they are there."""
        return min(len(self.waiting), self._chunk_frames()[-1])

    def is_due(self, num_steps: int) -> bool:
        """Whether its next chunk should be made.

        Chunks grow; at their longest they end with every step that is a multiple of their length, so that takes
        that began at different times become sound in one call.
        """
        if self.reason is not None:
            return bool(self.waiting)
        sizes = self._chunk_frames()
        size = sizes[min(self.num_chunks, len(sizes) - 1)]
        if len(self.waiting) >= size:
            return True
        return size == sizes[-1] and bool(self.waiting) and num_steps % size == 0

    def take_codes(self, num_frames: int) -> Tensor:
        """Codes (frames, codebooks) of the next chunk, which wait no longer."""
        codes = torch.stack(self.waiting[:num_frames])
        del self.waiting[:num_frames]
        self.num_chunks += 1
        return codes

    def _chunk_frames(self) -> tuple[int, ...]:
        return CHUNK_FRAMES if self.delivery.is_heard else UNHEARD_CHUNK_FRAMES
