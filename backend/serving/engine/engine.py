"""The engine: one model speaking many takes at once, in a thread of its own."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from backend.serving.engine.counters import Tally
from backend.serving.engine.handle import TakeHandle
from backend.serving.engine.request_queue import RequestQueue, WaitingTake
from backend.serving.engine.scheduler import Scheduler
from backend.serving.engine.statistics import EngineStatistics
from backend.serving.engine.take_stream import Delivery
from backend.serving.errors import EngineClosed, TakeFailed, TooBusy
from training.model.decoding.take_batch import TakeBatch
from training.model.decoding.take_request import TakeRequest
from training.model.voice_model import PrecisionChoice, VoiceModel

NUM_SLOTS = 8
CACHE_LENGTH = 2048
"""Steps per slot, prompt and frames together: over two minutes of speech behind an ordinary prompt."""

MAX_WAITING = 32

PATIENCE_SECONDS = 1.0
"""How long somebody who listens is assumed to wait without complaint."""

UNHEARD_PATIENCE_SECONDS = 10.0
"""The same for a take nobody listens to while it is made."""

MAX_FAILURES = 3
"""Rounds that may fail in a row before the engine counts as broken."""

_logger = logging.getLogger(__name__)


class Engine:
    """Speaks up to `num_slots` takes at once; every method may be called from any thread.

    Takes join and leave between frames. A take's codes are decided by its request alone: they are the same in any
    company. Without takes the thread sleeps. Close it when it is no longer needed, or use it as a context.
    """

    def __init__(
        self,
        model: VoiceModel,
        *,
        num_slots: int = NUM_SLOTS,
        cache_length: int = CACHE_LENGTH,
        max_waiting: int = MAX_WAITING,
        consume: bool = True,
    ) -> None:
        """Pack a model and start the thread.

        Args:
            model: the checkpoint; with `consume` its talker can then only embed prompts.
            num_slots: takes spoken at once.
            cache_length: steps per slot, prompt and frames together.
            max_waiting: takes that may wait for a slot; more are refused with TooBusy.
            consume: empty the talker's layers as they are packed, to hold the weights only once.
        """
        self.model, self.num_slots = model, num_slots
        self._max_waiting = max_waiting
        self._line, self._tally = RequestQueue(), Tally()
        self._batch = TakeBatch(model, num_slots=num_slots, cache_length=cache_length, consume=consume)
        self._scheduler = Scheduler(self._batch, self._line, self._tally)
        self._numbers = itertools.count()
        self._laying_out = threading.Lock()
        self._wake = threading.Condition()
        self._is_closed = False
        self._num_failures = 0
        self._take_seconds = 2.0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        precision: PrecisionChoice = "auto",
        device: str = "auto",
        num_slots: int = NUM_SLOTS,
        cache_length: int = CACHE_LENGTH,
        max_waiting: int = MAX_WAITING,
    ) -> Self:
        """An engine of a checkpoint folder.

        Raises:
            EncoreError: the folder is no checkpoint, or it cannot run here.
        """
        model = VoiceModel.load(folder, precision=precision, device=device)
        return cls(model, num_slots=num_slots, cache_length=cache_length, max_waiting=max_waiting)

    @property
    def sample_rate(self) -> int:
        """Of what it speaks, in Hz."""
        return self.model.sample_rate

    @property
    def pieces_ahead(self) -> int:
        """SegmentQueue of a long text worth asking for before they are needed, see `speak`."""
        return max(1, self.num_slots // 2 - 1) if self.num_slots > 1 else 0

    @property
    def is_healthy(self) -> bool:
        """Whether it can be expected to speak; false once closed or broken."""
        return not self._is_closed and self._thread.is_alive() and self._num_failures < MAX_FAILURES

    def check(self, request: TakeRequest) -> None:
        """Find out whether a request can be spoken, without speaking it. Raises PromptError if not."""
        with self._laying_out:
            self._batch.lay_out(request)

    def submit(
        self,
        request: TakeRequest,
        *,
        is_heard: bool = True,
        cancelled: Callable[[], bool] | None = None,
        needed_in_seconds: float | None = None,
        is_admitted: bool = False,
    ) -> TakeHandle:
        """Ask for a take and return at once; its chunks come through the handle.

        The first chunk holds one frame (80 ms), later ones grow; unheard takes come in larger pieces.

        Args:
            request: what to say, one piece of text.
            is_heard: somebody plays it while it is made.
            cancelled: asked before every frame, in the engine's thread.
            needed_in_seconds: when its first sound is needed; who is needed first gets the next free slot.
            is_admitted: a further piece of a text that is being spoken already, and so not turned away.

        Raises:
            PromptError: it cannot be spoken.
            TooBusy: too many are waiting.
            EngineClosed: there is nobody to speak any more.
        """
        with self._laying_out:
            frame_request = self._batch.lay_out(request)
        if needed_in_seconds is None:
            needed_in_seconds = PATIENCE_SECONDS if is_heard else UNHEARD_PATIENCE_SECONDS
        delivery = Delivery(frame_request.seed, self.sample_rate, is_heard=is_heard, cancelled=cancelled)
        entry = WaitingTake(
            needed_at=time.monotonic() + needed_in_seconds,
            number=next(self._numbers),
            request=frame_request,
            voice=request.voice,
            delivery=delivery,
        )
        with self._wake:
            if self._is_closed:
                raise EngineClosed
            if not is_admitted:
                self._refuse_beyond_bounds()
            # Counted first: the thread may have ended it before this goes on.
            self._tally.takes += 1
            self._line.add(entry)
            self._wake.notify_all()
        return TakeHandle(delivery, self.model.config.talker.num_code_groups)

    def statistics(self) -> EngineStatistics:
        """Where it stands."""
        tally = self._tally
        return EngineStatistics(
            num_slots=self.num_slots,
            num_active=len(self._scheduler.running),
            num_waiting=len(self._line),
            max_waiting=self._max_waiting,
            num_frames_total=tally.frames,
            num_steps_total=tally.steps,
            num_takes_total=tally.takes,
            num_finished_total=tally.finished,
            num_cancelled_total=tally.cancelled,
            num_failed_total=tally.failed,
            num_refused_total=tally.refused,
            num_underruns_total=tally.underruns,
            busy_seconds_total=tally.busy_seconds,
        )

    def close(self, timeout_seconds: float = 60.0) -> None:
        """End the thread before its next frame; takes that are not over end with EngineClosed. May be called twice."""
        with self._wake:
            self._is_closed = True
            self._wake.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_beyond_bounds(self) -> None:
        """Raises TooBusy when all slots are taken and the line is full."""
        # By what is not over, and not by who stands in the line: with slots free that is only on its way to one.
        num_unfinished = self._tally.unfinished
        if num_unfinished >= self.num_slots + self._max_waiting:
            self._tally.refused += 1
            raise TooBusy(
                f"{num_unfinished} takes are being spoken or waiting, and {self.num_slots + self._max_waiting} are "
                "the most.",
                retry_after_seconds=self._seconds_until_free(),
            )

    def _seconds_until_free(self) -> float:
        """Roughly when a line that is full now will have room."""
        return self._take_seconds * max(1, len(self._line)) / self.num_slots

    def _run(self) -> None:
        if self.model.is_small and self.model.device.type == "cpu":
            # A small network's operations are over before a second thread has woken up to help.
            torch.set_num_threads(1)
        try:
            while self._wait_for_work():
                started = time.monotonic()
                finished = self._tally.finished
                self._round()
                self._tally.busy_seconds += time.monotonic() - started
                if self._tally.finished > finished:
                    self._take_seconds = self._tally.busy_seconds * self.num_slots / self._tally.finished
        finally:
            with self._wake:
                self._is_closed = True
            self._scheduler.fail_all(EngineClosed(), waiting=True)
            self._scheduler.close()

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do; false when there never will be."""
        with self._wake:
            while not self._scheduler.has_work and not self._is_closed:
                self._wake.wait()
            return not self._is_closed

    def _round(self) -> None:
        try:
            self._scheduler.round()
            self._num_failures = 0
        except Exception:
            # The edge of all running takes: they end, and those who come after may have better luck.
            _logger.exception("a round of the engine failed")
            self._num_failures += 1
            self._scheduler.fail_all(TakeFailed(), waiting=False)
