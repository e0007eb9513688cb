"""A take in a slot: which of its frames wait to become sound, and when they should."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from backend.serving.engine.take_stream import Delivery
from training.model.decoding.frame_loop import FinishReason
from training.model.decoding.take import CHUNK_FRAMES, UNHEARD_CHUNK_FRAMES

NEVER = float("inf")


@dataclass(eq=False)
class RunningTake:
    """What the engine keeps of a take while it has a slot.

    Attributes:
        slot: where it is decoded.
        delivery: where its chunks go.
        begun_at: steps that the batch had made when it joined.
        waiting: frames that are not sound yet.
        num_chunks: delivered so far.
        num_decoded: frames in them.
        reason: why it has ended; None while frames are still coming.
        is_prepared: whether its decoder is behind the reference.
        is_sounding: whether frames of it are being decoded; its slot's decoder must be left alone so long.
    """

    slot: int
    delivery: Delivery
    begun_at: int = 0
    waiting: list[Tensor] = field(default_factory=list)
    num_chunks: int = 0
    num_decoded: int = 0
    reason: FinishReason | None = None
    is_prepared: bool = True
    is_sounding: bool = False

    @property
    def needed_at(self) -> float:
        """When a listener runs dry; long ago before the first chunk, never where nobody listens."""
        return self.delivery.clock.runs_dry_at if self.delivery.is_heard else NEVER

    def next_frames(self) -> int:
        """Frames in its next chunk, as far as they are there.

        Chunks grow; at their longest they end with every step that is a multiple of their length, so that takes
        that began at different times become sound in one call. How far the engine has come has no say in it: the
        last bits of a sample depend on where chunks end, and a take shall sound the same each time.
        """
        sizes = CHUNK_FRAMES if self.delivery.is_heard else UNHEARD_CHUNK_FRAMES
        size = sizes[min(self.num_chunks, len(sizes) - 1)]
        if size == sizes[-1]:
            size -= (self.begun_at + self.num_decoded) % size
        return min(len(self.waiting), size) if self.reason is not None else size

    @property
    def is_due(self) -> bool:
        """Whether its next chunk should be made."""
        if self.reason is not None:
            return bool(self.waiting)
        return len(self.waiting) >= self.next_frames()

    def take_codes(self, num_frames: int) -> Tensor:
        """Codes (frames, codebooks) of the next chunk, which wait no longer."""
        codes = torch.stack(self.waiting[:num_frames])
        del self.waiting[:num_frames]
        self.num_chunks += 1
        self.num_decoded += num_frames
        return codes

    def put_back(self, codes: Tensor) -> None:
        """Let frames (frames, codebooks) wait again that `take_codes` gave out last: there was no time for them."""
        self.waiting[:0] = codes.unbind()
        self.num_chunks -= 1
        self.num_decoded -= len(codes)
