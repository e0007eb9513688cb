"""Frames become sound beside the frame loop: on a processor of its own where there is one to spare."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass

import torch
from torch import Tensor

from backend.serving.engine.counters import Tally
from backend.serving.engine.slot import RunningTake
from training.model.decoding.take_batch import TakeBatch
from training.model.voice_model import VoiceModel

DECODING_SECONDS = 0.03
"""After so much decoding in one go the rest is thought over again, unless somebody would run dry."""

MARGIN_SECONDS = 0.25
"""Sound a listener should have in hand while something else is done first."""


@dataclass(frozen=True, eq=False)
class Chunks:
    """The next chunks of some takes, equally long, for one call of the decoder.

    Attributes:
        takes: in the order of their slots, which the batch decodes fastest.
        codes: (takes, frames, codebooks), the frames that wait no longer.
    """

    takes: Sequence[RunningTake]
    codes: Tensor

    @property
    def needed_at(self) -> float:
        """When the first listener runs dry."""
        return min(take.needed_at for take in self.takes)

    @property
    def has_ended(self) -> bool:
        """Whether somebody waits for the end of a take, and others for its slot."""
        return any(take.reason is not None for take in self.takes)

    def give_back(self) -> None:
        """Let the frames wait again."""
        for take, codes in zip(self.takes, self.codes, strict=True):
            take.put_back(codes)


class AudioDecodeWorker:
    """Decodes chunks one call after the other; used by one thread."""

    def __init__(self, batch: TakeBatch, tally: Tally, *, in_thread: bool) -> None:
        """With `in_thread` chunks are decoded while the caller goes on, else before `start` returns."""
        self._batch, self._tally = batch, tally
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sound") if in_thread else None
        self._chunks: Sequence[Chunks] = ()
        self._undone: Future[Sequence[Chunks]] | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether a round of decoding has not ended."""
        return self._undone is not None and not self._undone.done()

    def start(self, chunks: Sequence[Chunks]) -> None:
        """Decode chunks, the most urgent first; the last round must have been settled."""
        assert self._undone is None
        if self._executor is None:
            _give_back(self._decode_all(chunks))
        elif chunks:
            self._chunks = chunks
            self._mark(is_sounding=True)
            self._undone = self._executor.submit(self._decode_all, chunks)

    def settle(self, *, wait: bool) -> None:
        """Take note of a round that has ended: frames that were not reached wait again. Raises what decoding raised."""
        if self._undone is None or (self.is_at_work and not wait):
            return
        undone = self._undone
        self.abandon()
        _give_back(undone.result())

    def abandon(self) -> None:
        """Wait for the end of a round, whatever comes of it."""
        if self._undone is not None:
            wait_for([self._undone])
            self._undone = None
            self._mark(is_sounding=False)

    def close(self) -> None:
        """End the thread, after what it is at."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _mark(self, *, is_sounding: bool) -> None:
        for chunks in self._chunks:
            for take in chunks.takes:
                take.is_sounding = is_sounding

    def _decode_all(self, chunks: Sequence[Chunks]) -> Sequence[Chunks]:
        """Those there was no time for."""
        if self._executor is not None:
            torch.set_num_threads(1)
        started = time.monotonic()
        for position, some in enumerate(chunks):
            now = time.monotonic()
            can_wait = some.needed_at > now + MARGIN_SECONDS and not some.has_ended
            if position and now - started > DECODING_SECONDS and can_wait:
                return chunks[position:]
            sound = self._batch.decode([take.slot for take in some.takes], some.codes)
            for take, samples in zip(some.takes, sound, strict=True):
                if take.delivery.put(samples.copy()):
                    self._tally.underruns += 1
        return ()


def has_processor_for_sound(model: VoiceModel) -> bool:
    """Whether decoding beside the frame loop gains: for small networks, which keep one processor busy at most."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return model.is_small and model.device.type == "cpu" and processors > 1


def _give_back(left: Sequence[Chunks]) -> None:
    # A take may be among them more than once: its last frames were chosen last.
    for chunks in reversed(left):
        chunks.give_back()
