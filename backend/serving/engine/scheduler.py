"""Rounds of a running batch: admit takes, make one frame of each, and choose the frames to decode."""

from __future__ import annotations

import logging
import time
from collections import Counter

import torch

from backend.errors import EncoreError
from backend.serving.engine.codec_worker import AudioDecodeWorker, DecodeBatch, has_core_for_decoding
from backend.serving.engine.frame_pace import PaceMeter
from backend.serving.engine.request_queue import RequestQueue, WaitingTake
from backend.serving.engine.running_take import NEVER, RunningTake
from backend.serving.engine.statistics import EngineStatistics
from backend.serving.engine.take_stream import TakeStream
from backend.serving.errors import TakeFailed
from training.model.generation.finish_reason import FinishReason
from training.model.generation.take_batch import MAX_FRAMES_PER_CALL, TakeBatch

MAX_PREFILL_TOKENS = 512
"""Prompt tokens per round beyond the first take's, so that running takes are not held up by many new ones."""

MAX_DEFERRAL_SECONDS = 1.0
"""A new take is deferred for live clients that would run dry, but no longer than this beyond its own deadline."""

_logger = logging.getLogger(__name__)


class Scheduler:
    """Everything one engine's thread does with its batch; not thread-safe."""

    def __init__(self, batch: TakeBatch, queue: RequestQueue, statistics: EngineStatistics) -> None:
        self.batch, self.queue, self.statistics = batch, queue, statistics
        self.pace = PaceMeter()
        self._decoding = AudioDecodeWorker(batch, statistics, self.pace, in_thread=has_core_for_decoding(batch.model))
        self.running: list[RunningTake] = []
        self._num_steps = 0
        self._stepped_at: float | None = None
        self._prefill_seconds_per_token = 0.0

    @property
    def has_work(self) -> bool:
        """True if a round would do anything."""
        return bool(self.running) or len(self.queue) > 0

    def run_round(self) -> None:
        """Make one frame of every running take, with all that goes with it."""
        self._settle(wait=False)
        self._drop_unwanted()
        self._admit()
        if not self.running:
            return
        has_stepped = self._step()
        self._prepare()
        if not self._decoding.is_running:
            self._settle(wait=False)
            self._decoding.start(self._choose_frames())
        # Without frames to make there is nothing to do but to wait for the decoder.
        self._settle(wait=not has_stepped)

    def fail_all(self, error: BaseException, *, waiting: bool) -> None:
        """End every running take with an error, and with `waiting` those in the queue too."""
        self._decoding.abandon()
        for take in list(self.running):
            self._end(take, error=error)
        if waiting:
            for entry in self.queue.remove_all():
                self._fail(entry.stream, error)

    def close(self) -> None:
        """End the decoder's thread."""
        self._decoding.close()

    def _settle(self, *, wait: bool) -> None:
        """Take over what has been decoded; takes whose frames are all decoded are over."""
        self._decoding.settle(wait=wait)
        for take in list(self.running):
            if take.reason is not None and not take.waiting and not take.is_decoding:
                self._end(take, take.reason)

    def _drop_unwanted(self) -> None:
        for entry in self.queue.remove_unwanted():
            entry.stream.finish(FinishReason.CANCELLED)
            self.statistics.num_cancelled_total += 1
        unwanted = [take for take in self.running if not take.stream.is_wanted]
        if any(take.is_decoding for take in unwanted):
            self._settle(wait=True)
        for take in unwanted:
            if take in self.running:
                self._end(take, FinishReason.CANCELLED)

    def _admit(self) -> None:
        """Give free slots to waiting takes, unless that would starve running ones."""
        if not self.running:
            # A take on its own comes out the same each time, see `RunningTake.next_frames`.
            self._num_steps = 0
            self._stepped_at = None
        num_tokens = 0
        while self._free_slots and (entry := self.queue.first(self._num_running())) is not None:
            new_tokens = len(entry.request.prompt.inputs)
            if (num_tokens and num_tokens + new_tokens > MAX_PREFILL_TOKENS) or self._should_defer(entry):
                return
            self.queue.remove(entry)
            self._start(entry)
            num_tokens += new_tokens

    def _num_running(self) -> Counter[str]:
        """Takes that each client has in slots."""
        return Counter(take.stream.client for take in self.running)

    @property
    def _free_slots(self) -> list[int]:
        """Slots without a take, and whose decoder is done with the take before."""
        used = {take.slot for take in self.running}
        return [slot for slot in self.batch.free_slots if slot not in used]

    def _should_defer(self, entry: WaitingTake) -> bool:
        """True if prefilling this prompt would starve a live client: its buffer is shorter than the prefill."""
        now = time.monotonic()
        if now > entry.needed_at + MAX_DEFERRAL_SECONDS:
            return False
        seconds = self._prefill_seconds_per_token * len(entry.request.prompt.inputs)
        buffered = [take.needed_at - now for take in self.running if take.num_chunks and take.needed_at < NEVER]
        return any(0 < left < seconds for left in buffered)

    def _start(self, entry: WaitingTake) -> None:
        slot, started = self._free_slots[0], time.monotonic()
        entry.stream.timeline.admitted = time.time()
        try:
            self.batch.admit(slot, entry.request, entry.voice)
            is_prepared = not self.batch.is_preparing(slot)
        except EncoreError as error:
            self._fail(entry.stream, error)
            return
        except Exception as error:
            # One take's edge: whatever is wrong with it, the others go on.
            _logger.exception("a take could not begin")
            self._fail(entry.stream, TakeFailed().with_traceback(error.__traceback__))
            return
        entry.stream.timeline.prefilled = time.time()
        per_token = (time.monotonic() - started) / len(entry.request.prompt.inputs)
        self._prefill_seconds_per_token += (per_token - self._prefill_seconds_per_token) / 4
        self.running.append(
            RunningTake(
                slot=slot,
                stream=entry.stream,
                begun_at=self._num_steps,
                is_prepared=is_prepared,
                fades=self.batch.model.fades_last_frame,
            )
        )

    def _step(self) -> bool:
        """Make a frame of every take that has not ended; false if all have."""
        # Ended takes have left the loop; they are here only for the rest of their audio.
        if all(take.reason is not None for take in self.running):
            return False
        step = self.batch.step()
        self._num_steps += 1
        now = time.monotonic()
        if self._stepped_at is not None and step.spoke:
            self.pace.add_frame(len(step.spoke), now - self._stepped_at)
        self._stepped_at = now
        self.statistics.num_steps_total += 1
        self.statistics.num_frames_total += len(step.spoke)
        by_slot = {take.slot: take for take in self.running if take.reason is None}
        for slot in step.spoke:
            by_slot[slot].waiting.append(step.codes_BQ[slot])
            by_slot[slot].stream.codes.append(step.codes_BQ[slot])
            by_slot[slot].stream.timeline.add_frame()
        for slot, reason in step.finished.items():
            by_slot[slot].reason = reason
        return True

    def _prepare(self) -> None:
        """Advance the decoder needed first through its reference; to its end for takes that have ended."""
        unprepared = sorted((take for take in self.running if not take.is_prepared), key=_urgency)
        for position, take in enumerate(unprepared):
            while not take.is_prepared and (position == 0 or take.reason is not None):
                take.is_prepared = self.batch.prepare(take.slot)
                if take.reason is None:
                    break

    def _choose_frames(self) -> list[DecodeBatch]:
        """What should be decoded now, in the order in which it is needed."""
        chosen: list[DecodeBatch] = []
        while due := self._due():
            # An ended take's slot is wanted by others.
            first = next((take for take in due if take.reason is not None), due[0])
            frames = first.next_frames()
            max_takes = max(1, MAX_FRAMES_PER_CALL // frames)
            group = [first, *(take for take in due if take is not first and take.next_frames() == frames)][:max_takes]
            group.sort(key=lambda take: take.slot)
            codes = torch.stack([take.take_codes(frames) for take in group])
            chosen.append(DecodeBatch(group, codes, fading=[take for take in group if take.is_to_fade]))
        return chosen

    def _due(self) -> list[RunningTake]:
        due = [take for take in self.running if take.is_prepared and take.is_due]
        return sorted(due, key=_urgency)

    def _end(
        self, take: RunningTake, reason: FinishReason | None = None, *, error: BaseException | None = None
    ) -> None:
        self.running.remove(take)
        self.batch.release(take.slot)
        if error is not None:
            self._fail(take.stream, error)
            return
        assert reason is not None
        take.stream.finish(reason)
        if reason is FinishReason.CANCELLED:
            self.statistics.num_cancelled_total += 1
        else:
            self.statistics.num_finished_total += 1

    def _fail(self, stream: TakeStream, error: BaseException) -> None:
        stream.finish(FinishReason.CANCELLED, error)
        self.statistics.num_failed_total += 1


def _urgency(take: RunningTake) -> tuple[float, float]:
    return take.needed_at, take.stream.submitted
