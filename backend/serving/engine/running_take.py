"""A take in a slot: which of its frames are still to be decoded to audio, and when."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from backend.serving.engine.take_stream import TakeStream
from training.model.generation.finish_reason import FinishReason

NEVER = float("inf")

LIVE_CHUNK_FRAMES = (1, 2, 4, 8, 12)
"""Frames per chunk; the last repeats. The first is out after one frame, later ones cost less per frame."""

BUFFERED_CHUNK_FRAMES = (1, 16)
"""The same for a take that is not played yet: as few decoder calls as memory allows after the first."""


@dataclass(eq=False)
class RunningTake:
    """What the engine keeps of a take while it has a slot.

    Attributes:
        slot: where it is decoded.
        stream: where its chunks go.
        begun_at: steps that the batch had made when it was admitted.
        waiting: frames that are not decoded yet.
        num_chunks: decoded so far.
        num_decoded: frames in them.
        fades: true if its last frame is silenced where it ends by itself, so that a frame is only decoded once it is
            known whether another one follows.
        reason: why it has ended; None while frames are still coming.
        is_prepared: true once its decoder has read the reference.
        is_decoding: true while frames of it are being decoded; its slot's decoder must not be touched meanwhile.
    """

    slot: int
    stream: TakeStream
    begun_at: int = 0
    waiting: list[Tensor] = field(default_factory=list)
    num_chunks: int = 0
    num_decoded: int = 0
    fades: bool = False
    reason: FinishReason | None = None
    is_prepared: bool = True
    is_decoding: bool = False

    @property
    def needed_at(self) -> float:
        """When a live client runs dry: in the past before the first chunk, never for a take that is not live."""
        return self.stream.clock.runs_dry_at if self.stream.is_live else NEVER

    def next_frames(self) -> int:
        """Number of frames in its next chunk.

        Chunks grow; at their longest they end at steps that are multiples of their length, so that takes that began
        at different times are decoded in one call. The load of the engine has no influence: the last bits of a
        sample depend on where chunks end, and a take must come out the same each time.
        """
        sizes = LIVE_CHUNK_FRAMES if self.stream.is_live else BUFFERED_CHUNK_FRAMES
        size = sizes[min(self.num_chunks, len(sizes) - 1)]
        if size == sizes[-1]:
            size -= (self.begun_at + self.num_decoded) % size
        return min(len(self.waiting), size) if self.reason is not None else size

    @property
    def is_due(self) -> bool:
        """True if its next chunk can be decoded."""
        if self.reason is not None:
            return bool(self.waiting)
        return len(self.waiting) >= self.next_frames() + self.fades

    @property
    def is_to_fade(self) -> bool:
        """True if the last of the frames that were taken last is silenced."""
        return self.fades and self.reason is FinishReason.EOS and not self.waiting

    def take_codes(self, num_frames: int) -> Tensor:
        """Remove and return the codes (frames, codebooks) of the next chunk."""
        codes = torch.stack(self.waiting[:num_frames])
        del self.waiting[:num_frames]
        self.num_chunks += 1
        self.num_decoded += num_frames
        return codes

    def put_back(self, codes: Tensor) -> None:
        """Undo the last `take_codes`, whose codes (frames, codebooks) were not decoded for lack of time."""
        self.waiting[:0] = codes.unbind()
        self.num_chunks -= 1
        self.num_decoded -= len(codes)
