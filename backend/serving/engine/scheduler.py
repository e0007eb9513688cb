"""Rounds of a running batch: who joins, a frame for everybody, and whose frames become sound."""

from __future__ import annotations

import logging
import time

import torch

from backend.errors import EncoreError
from backend.serving.engine.audio_decoding import AudioDecodeWorker, Chunks, has_processor_for_sound
from backend.serving.engine.counters import Tally
from backend.serving.engine.request_queue import RequestQueue, WaitingTake
from backend.serving.engine.slot import NEVER, RunningTake
from backend.serving.errors import TakeFailed
from training.model.decoding.frame_loop import FinishReason
from training.model.decoding.take_batch import TakeBatch

MAX_PREFILL_ROWS = 512
"""Prompt rows per round beyond the first newcomer's, so that those who speak are not held up by a crowd."""

MAX_DEFERRAL_SECONDS = 1.0
"""A newcomer stands back for listeners who would run dry, but not longer than this beyond its own turn."""

MAX_FRAMES_PER_CALL = 128
"""Frames of all takes in one call of the decoder: bounds its memory."""

_logger = logging.getLogger(__name__)


class Scheduler:
    """Everything one engine's thread does with its batch; not thread-safe."""

    def __init__(self, batch: TakeBatch, line: RequestQueue, tally: Tally) -> None:
        self.batch, self.line, self.tally = batch, line, tally
        self._sound = AudioDecodeWorker(batch, tally, in_thread=has_processor_for_sound(batch.model))
        self.running: list[RunningTake] = []
        self._num_steps = 0
        self._prefill_seconds_per_row = 0.0

    @property
    def has_work(self) -> bool:
        """Whether a round would do anything."""
        return bool(self.running) or len(self.line) > 0

    def round(self) -> None:
        """One frame for everybody, and what goes with it."""
        self._settle(wait=False)
        self._drop_unwanted()
        self._admit()
        if not self.running:
            return
        has_stepped = self._step()
        self._prepare()
        if not self._sound.is_at_work:
            self._settle(wait=False)
            self._sound.start(self._choose_chunks())
        # Without frames to make there is nothing to do but to wait for the sound.
        self._settle(wait=not has_stepped)

    def fail_all(self, error: BaseException, *, waiting: bool) -> None:
        """End every running take with an error, and with `waiting` those in the line too."""
        self._sound.abandon()
        for take in list(self.running):
            self._end(take, error=error)
        if waiting:
            for entry in self.line.take_all():
                entry.delivery.fail(error)
                self.tally.failed += 1

    def close(self) -> None:
        """Leave no thread behind."""
        self._sound.close()

    def _settle(self, *, wait: bool) -> None:
        """Go on from the sound that has been made: takes are over when all of theirs is."""
        self._sound.settle(wait=wait)
        for take in list(self.running):
            if take.reason is not None and not take.waiting and not take.is_sounding:
                self._end(take, take.reason)

    def _drop_unwanted(self) -> None:
        for entry in self.line.take_unwanted():
            entry.delivery.finish(FinishReason.CANCELLED)
            self.tally.cancelled += 1
        unwanted = [take for take in self.running if not take.delivery.is_wanted]
        if any(take.is_sounding for take in unwanted):
            self._settle(wait=True)
        for take in unwanted:
            if take in self.running:
                self._end(take, FinishReason.CANCELLED)

    def _admit(self) -> None:
        """Give free slots to those who wait, as far as those who speak can bear it."""
        if not self.running:
            # Whoever is alone sounds the same each time, see `RunningTake.next_frames`.
            self._num_steps = 0
        rows = 0
        while self._free_slots and (entry := self.line.first()) is not None:
            new_rows = len(entry.request.prompt.rows)
            if (rows and rows + new_rows > MAX_PREFILL_ROWS) or self._should_stand_back(entry):
                return
            self.line.remove(entry)
            self._join(entry)
            rows += new_rows

    @property
    def _free_slots(self) -> list[int]:
        """Slots without a take whose decoder is done with the take before."""
        sounding = {take.slot for take in self.running}
        return [slot for slot in self.batch.free_slots if slot not in sounding]

    def _should_stand_back(self, entry: WaitingTake) -> bool:
        """Whether a listener has so little in hand that it would be gone while this one's prompt is read."""
        now = time.monotonic()
        if now > entry.needed_at + MAX_DEFERRAL_SECONDS:
            return False
        seconds = self._prefill_seconds_per_row * len(entry.request.prompt.rows)
        in_hand = [take.needed_at - now for take in self.running if take.num_chunks and take.needed_at < NEVER]
        return any(0 < left < seconds for left in in_hand)

    def _join(self, entry: WaitingTake) -> None:
        slot, started = self._free_slots[0], time.monotonic()
        try:
            self.batch.join(slot, entry.request, entry.voice)
            is_prepared = not self.batch.is_preparing(slot)
        except EncoreError as error:
            entry.delivery.fail(error)
            self.tally.failed += 1
            return
        except Exception as error:
            # One take's edge: whatever is wrong with it, the others go on.
            _logger.exception("a take could not begin")
            entry.delivery.fail(TakeFailed().with_traceback(error.__traceback__))
            self.tally.failed += 1
            return
        per_row = (time.monotonic() - started) / len(entry.request.prompt.rows)
        self._prefill_seconds_per_row += (per_row - self._prefill_seconds_per_row) / 4
        self.running.append(
            RunningTake(slot=slot, delivery=entry.delivery, begun_at=self._num_steps, is_prepared=is_prepared)
        )

    def _step(self) -> bool:
        """Whether anybody had a frame to make."""
        # Ended takes have left the loop; they are here only for the rest of their sound.
        if all(take.reason is not None for take in self.running):
            return False
        step = self.batch.step()
        self._num_steps += 1
        self.tally.steps += 1
        self.tally.frames += len(step.spoke)
        by_slot = {take.slot: take for take in self.running if take.reason is None}
        codes = step.codes_BQ.cpu()
        for slot in step.spoke:
            by_slot[slot].waiting.append(codes[slot])
            by_slot[slot].delivery.codes.append(codes[slot])
        for slot, reason in step.finished.items():
            by_slot[slot].reason = reason
        return True

    def _prepare(self) -> None:
        """Take the decoder that is needed first a piece further through its reference; all of it for ended takes."""
        unprepared = sorted((take for take in self.running if not take.is_prepared), key=_urgency)
        for position, take in enumerate(unprepared):
            while not take.is_prepared and (position == 0 or take.reason is not None):
                take.is_prepared = self.batch.prepare(take.slot)
                if take.reason is None:
                    break

    def _choose_chunks(self) -> list[Chunks]:
        """What should become sound now, for those first who need it first."""
        chosen: list[Chunks] = []
        while due := self._due():
            # An ended take's slot is wanted by others.
            first = next((take for take in due if take.reason is not None), due[0])
            frames = first.next_frames()
            most = max(1, MAX_FRAMES_PER_CALL // frames)
            group = [first, *(take for take in due if take is not first and take.next_frames() == frames)][:most]
            group.sort(key=lambda take: take.slot)
            chosen.append(Chunks(group, torch.stack([take.take_codes(frames) for take in group])))
        return chosen

    def _due(self) -> list[RunningTake]:
        due = [take for take in self.running if take.is_prepared and take.is_due]
        return sorted(due, key=_urgency)

    def _end(
        self, take: RunningTake, reason: FinishReason | None = None, *, error: BaseException | None = None
    ) -> None:
        self.running.remove(take)
        self.batch.leave(take.slot)
        if error is not None:
            take.delivery.fail(error)
            self.tally.failed += 1
        elif reason is FinishReason.CANCELLED:
            take.delivery.finish(reason)
            self.tally.cancelled += 1
        else:
            assert reason is not None
            take.delivery.finish(reason)
            self.tally.finished += 1


def _urgency(take: RunningTake) -> tuple[float, float]:
    return take.needed_at, take.delivery.submitted
