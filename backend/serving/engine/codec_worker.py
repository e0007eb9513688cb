"""Decodes codec frames to audio, in a worker thread where that helps: on a GPU, or with a second CPU core free."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.serving.engine.frame_pace import PaceMeter
from backend.serving.engine.running_take import RunningTake
from backend.serving.engine.statistics import EngineStatistics
from training.model.generation.take_batch import TakeBatch
from training.model.voice_model import VoiceModel

DECODING_SECONDS = 0.03
"""After so much decoding in one round the rest is put back and chosen anew, unless a client would run dry."""

FADE = 0.1
"""Part of a silenced frame in which it fades: 5 ms of the embedded checkpoint's."""

MARGIN_SECONDS = 0.25
"""Audio that a live client should have buffered while other chunks are decoded first."""


@dataclass(frozen=True, eq=False)
class DecodeBatch:
    """The next chunks of some takes, equally long, for one call of the decoder.

    Attributes:
        takes: in the order of their slots, which the batch decodes fastest.
        codes: (takes, frames, codebooks).
        fading: the takes whose last frame here is to be silenced.
    """

    takes: Sequence[RunningTake]
    codes: Tensor
    fading: Sequence[RunningTake] = ()

    @property
    def needed_at(self) -> float:
        """When the first client runs dry."""
        return min(take.needed_at for take in self.takes)

    @property
    def has_ended(self) -> bool:
        """True if a take has ended, so that its slot is wanted."""
        return any(take.reason is not None for take in self.takes)

    def put_back(self) -> None:
        """Return the frames to their takes, to be decoded later."""
        for take, codes in zip(self.takes, self.codes, strict=True):
            take.put_back(codes)


class AudioDecodeWorker:
    """Decodes chunks one call after the other; used by one thread."""

    def __init__(self, batch: TakeBatch, statistics: EngineStatistics, pace: PaceMeter, *, in_thread: bool) -> None:
        """With `in_thread` chunks are decoded while the caller goes on, else before `start` returns."""
        self._batch, self._statistics, self._pace = batch, statistics, pace
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="decode") if in_thread else None
        self._batches: Sequence[DecodeBatch] = ()
        self._undone: Future[Sequence[DecodeBatch]] | None = None

    @property
    def is_running(self) -> bool:
        """True while a round of decoding is under way."""
        return self._undone is not None and not self._undone.done()

    def start(self, batches: Sequence[DecodeBatch]) -> None:
        """Decode batches, the most urgent first; the last round must have been settled."""
        assert self._undone is None
        if self._executor is None:
            _put_back(self._decode_all(batches))
        elif batches:
            self._batches = batches
            self._mark(is_decoding=True)
            self._undone = self._executor.submit(self._decode_all, batches)

    def settle(self, *, wait: bool) -> None:
        """Finish a round that has ended: frames that were not reached are put back. Raises what decoding raised."""
        if self._undone is None or (self.is_running and not wait):
            return
        undone = self._undone
        self.abandon()
        _put_back(undone.result())

    def abandon(self) -> None:
        """Wait for the end of a round and ignore its result."""
        if self._undone is not None:
            wait_for([self._undone])
            self._undone = None
            self._mark(is_decoding=False)

    def close(self) -> None:
        """End the thread, after the round under way."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _mark(self, *, is_decoding: bool) -> None:
        for batch in self._batches:
            for take in batch.takes:
                take.is_decoding = is_decoding

    def _decode_all(self, batches: Sequence[DecodeBatch]) -> Sequence[DecodeBatch]:
        """Decode as many batches as there is time for; returns the rest."""
        if self._executor is not None:
            torch.set_num_threads(1)
        started = time.monotonic()
        for position, batch in enumerate(batches):
            now = time.monotonic()
            can_wait = batch.needed_at > now + MARGIN_SECONDS and not batch.has_ended
            if position and now - started > DECODING_SECONDS and can_wait:
                return batches[position:]
            audio = self._batch.decode([take.slot for take in batch.takes], batch.codes)
            for take, samples in zip(batch.takes, audio, strict=True):
                before = take.stream.put_at
                is_fading = take in batch.fading
                heard = silence_last_frame(samples, batch.codes.shape[1], FADE) if is_fading else samples.copy()
                if take.stream.put(heard):
                    self._statistics.num_underruns_total += 1
                if take.stream.is_live and before is not None and take.stream.put_at is not None:
                    self._pace.add_chunk(batch.codes.shape[1], take.stream.put_at - before)
        return ()


def silence_last_frame(samples: NDArray[np.float32], num_frames: int, fade: float) -> NDArray[np.float32]:
    """A copy of so many frames' samples in which the last frame fades out within the `fade` part of it."""
    silenced = samples.copy()
    last = silenced[silenced.size - silenced.size // num_frames :]
    num_faded = round(last.size * fade)
    last[:num_faded] *= np.arange(num_faded, 0, -1, dtype=np.float32) / np.float32(num_faded + 1)
    last[num_faded:] = 0
    return silenced


def has_core_for_decoding(model: VoiceModel) -> bool:
    """True if decoding in parallel with the frame loop helps: a GPU has streams, a small network needs one CPU core."""
    if model.device.type == "cuda":
        return True
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return model.is_small and model.device.type == "cpu" and processors > 1


def _put_back(left: Sequence[DecodeBatch]) -> None:
    # A take may be among them more than once: its last frames were chosen last.
    for batch in reversed(left):
        batch.put_back()
