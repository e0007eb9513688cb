"""The engine: one model that speaks many takes at once, in a thread of its own."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from backend.serving.engine.adapter_cache import MAX_ADAPTER_BYTES, AdapterCache
from backend.serving.engine.fair_share import FairShare
from backend.serving.engine.frame_pace import FramePace
from backend.serving.engine.request_queue import RequestQueue, WaitingTake
from backend.serving.engine.scheduler import Scheduler
from backend.serving.engine.statistics import EngineStatistics
from backend.serving.engine.take_stream import TakeStream
from backend.serving.errors import EngineBusy, EngineClosed, TakeFailed
from backend.watermark.mark import Mark
from training.allocator import return_freed_memory
from training.model.generation.adapter import load_adapter
from training.model.generation.take_batch import TakeBatch
from training.model.generation.take_request import TakeRequest
from training.model.memory_need import find_room
from training.model.precision import PrecisionChoice
from training.model.voice_model import VoiceModel

NUM_SLOTS = 8
CACHE_LENGTH = 2048
"""Tokens per slot, prompt and frames together: over two minutes of speech after an ordinary prompt."""

MAX_WAITING = 32

LIVE_DEADLINE_SECONDS = 1.0
"""How soon the first audio of a live take should be there; decides the order of the queue."""

BUFFERED_DEADLINE_SECONDS = 10.0
"""The same for a take that is not played while it is made."""

MAX_FAILURES = 3
"""Rounds that may fail in a row before the engine counts as broken."""

IDLE_SECONDS, RETURN_SECONDS = 5.0, 60.0
"""Memory that was freed goes back to the system after so long without a take, and then, or amid takes, every minute."""

CAPTURE_SECONDS = 0.05
"""Between two graphs that are captured while there is no take."""

UNSAID_SECONDS = 2.0
"""Of preparing a GPU, before anything is said about it."""

_logger = logging.getLogger(__name__)


class Engine:
    """Speaks up to `num_slots` takes at once; every method may be called from any thread.

    Takes are admitted and released between frames (continuous batching). A take's codes depend on its request alone,
    whatever else is in the batch. Without takes the thread sleeps, and returns memory that was freed. Close it after
    use, or use it as a context.
    """

    def __init__(
        self,
        model: VoiceModel,
        *,
        num_slots: int = NUM_SLOTS,
        cache_length: int = CACHE_LENGTH,
        max_waiting: int = MAX_WAITING,
        consume: bool = True,
        mark: Mark | None = None,
        max_adapter_bytes: int = MAX_ADAPTER_BYTES,
    ) -> None:
        """Pack a model and start the thread.

        Args:
            model: the checkpoint; with `consume` its talker can then only embed prompts, unless it matches timbre.
            num_slots: takes spoken at once.
            cache_length: tokens per slot, prompt and frames together.
            max_waiting: takes that may wait for a slot; more are refused with EngineBusy.
            consume: empty the talker's layers as they are packed, to hold the weights only once.
            mark: what says that the speech was made; the public mark if nothing is given.
            max_adapter_bytes: memory for adapters of its model, beside the model.
        """
        self.model, self.num_slots, self.mark = model, num_slots, mark or Mark()
        self._queue = RequestQueue()
        # By unfinished takes rather than the queue's length: with slots free, a take is only passing through it.
        self._places = FairShare(num_slots + max_waiting, "takes are being spoken or waiting")
        self._statistics = EngineStatistics(num_slots=num_slots, max_waiting=max_waiting)
        self._batch = TakeBatch(model, num_slots=num_slots, cache_length=cache_length, consume=consume)
        # One sentence on a processor is spoken sooner without.
        self._captures_between_takes = num_slots == 1 and bool(self._batch.later_graphs())
        if not self._captures_between_takes:
            _capture_usual(self._batch)
        self.adapters = AdapterCache(lambda folder: load_adapter(folder, model), max_adapter_bytes)
        """Of its model: what takes may bring along."""
        self._scheduler = Scheduler(self._batch, self._queue, self._statistics)
        self._numbers = itertools.count()
        self._streams: weakref.WeakSet[TakeStream] = weakref.WeakSet()
        self._laying_out = threading.Lock()
        self._wake = threading.Condition()
        self._is_closed = False
        self._num_failures = 0
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
        mark: Mark | None = None,
        max_adapter_bytes: int = MAX_ADAPTER_BYTES,
    ) -> Self:
        """Make an engine for a checkpoint folder.

        Raises:
            EncoreError: the folder is not a checkpoint, it cannot run here, or there is no room for it.
        """
        room = find_room(folder, precision, device, num_slots=num_slots, cache_length=cache_length)
        model = VoiceModel.load(folder, precision=precision, device=str(room.device))
        return cls(
            model,
            num_slots=num_slots,
            cache_length=cache_length,
            max_waiting=max_waiting,
            mark=mark,
            max_adapter_bytes=max_adapter_bytes,
        )

    @property
    def sample_rate(self) -> int:
        """Of the audio, in Hz."""
        return self.model.sample_rate

    @property
    def segments_ahead(self) -> int:
        """How many segments of a long text are worth requesting before they are needed, see `SegmentQueue`."""
        return max(1, self.num_slots // 2 - 1) if self.num_slots > 1 else 0

    @property
    def is_healthy(self) -> bool:
        """False once it is closed or broken."""
        return not self._is_closed and self._thread.is_alive() and self._num_failures < MAX_FAILURES

    def check(self, request: TakeRequest) -> None:
        """Check that a request can be spoken, without speaking it. Raises PromptError if not."""
        with self._laying_out:
            self._batch.lay_out(request)

    def submit(
        self,
        request: TakeRequest,
        *,
        is_live: bool = True,
        cancelled: Callable[[], bool] | None = None,
        needed_in_seconds: float | None = None,
        bypass_admission: bool = False,
        client: str = "",
    ) -> TakeStream:
        """Request a take and return at once with the stream of its chunks.

        The first chunk holds one frame (80 ms), later ones grow; takes that are not live come in larger chunks.

        Args:
            request: what to say, one segment of text.
            is_live: the client plays it while it is made.
            cancelled: asked before every frame, in the engine's thread.
            needed_in_seconds: when its first audio is needed; the earliest deadline gets the next free slot.
            bypass_admission: never refuse it: a later segment of a text that was already admitted.
            client: who asks; slots and places are shared fairly between clients.

        Raises:
            PromptError: it cannot be spoken.
            EngineBusy: the queue is full, or this client's share of it.
            EngineClosed: the engine has been shut down.
        """
        with self._laying_out:
            frame_request = self._batch.lay_out(request)
        if needed_in_seconds is None:
            needed_in_seconds = LIVE_DEADLINE_SECONDS if is_live else BUFFERED_DEADLINE_SECONDS
        stream = TakeStream(frame_request.seed, self.sample_rate, is_live=is_live, cancelled=cancelled, client=client)
        entry = WaitingTake(
            needed_at=time.monotonic() + needed_in_seconds,
            number=next(self._numbers),
            request=frame_request,
            voice=request.voice,
            stream=stream,
        )
        with self._wake:
            if self._is_closed:
                raise EngineClosed
            try:
                stream.on_end = self._places.enter(client, is_promised=bypass_admission)
            except EngineBusy:
                self._statistics.num_refused_total += 1
                raise
            # Counted first: the thread may have ended it before this goes on.
            self._statistics.num_takes_total += 1
            self._streams.add(stream)
            self._queue.add(entry)
            self._wake.notify_all()
        return stream

    def statistics(self) -> EngineStatistics:
        """A snapshot of its counts."""
        return replace(
            self._statistics,
            num_active=len(self._scheduler.running),
            num_waiting=len(self._queue),
            num_adapters=len(self.adapters.loaded()),
            num_adapter_loads_total=self.adapters.num_loads,
        )

    @property
    def pace(self) -> FramePace | None:
        """How fast it makes frames at the moment; None before it has made any."""
        return self._scheduler.pace.now()

    def num_bytes(self) -> dict[str, int]:
        """What it holds, by owner; the tensors are on the model's device."""
        with self._wake:
            streams = list(self._streams)
        return {
            **self._batch.num_bytes(),
            "adapters": self.adapters.num_bytes,
            "audio_buffers": sum(stream.num_bytes for stream in streams),
        }

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

    def _run(self) -> None:
        if self.model.is_small and self.model.device.type == "cpu":
            # A small network's operations are over before a second thread has woken up to help.
            torch.set_num_threads(1)
        try:
            returned_at = 0.0
            while self._wait_for_work():
                started = time.monotonic()
                if self._captures_between_takes and self._statistics.num_takes_total > 1:
                    self._capture_later()
                self._run_round()
                self._statistics.busy_seconds_total += time.monotonic() - started
                # By the time that was worked: never at the first frame after a pause.
                if self._statistics.busy_seconds_total > returned_at + RETURN_SECONDS:
                    return_freed_memory()
                    returned_at = self._statistics.busy_seconds_total
        finally:
            with self._wake:
                self._is_closed = True
            self._scheduler.fail_all(EngineClosed(), waiting=True)
            self._scheduler.close()

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do; false when the engine is closed."""
        # What was just started has graphs to capture, before it is spoken to.
        is_new = not (self._captures_between_takes or self._statistics.num_takes_total)
        patience = CAPTURE_SECONDS if is_new else IDLE_SECONDS
        while True:
            with self._wake:
                if self._scheduler.has_work or self._is_closed:
                    return not self._is_closed
                is_woken = self._wake.wait(patience)
            if is_woken:
                continue
            if self._capture_later():
                patience = CAPTURE_SECONDS
                continue
            patience = RETURN_SECONDS
            return_freed_memory()

    def _capture_later(self) -> bool:
        """Capture one graph more, if one is worth it and no take runs; one that comes meanwhile waits for no more."""
        if self._scheduler.running or not (later := self._batch.later_graphs()):
            return False
        return self._batch.capture(later[:1]) > 0

    def _run_round(self) -> None:
        try:
            self._scheduler.run_round()
            self._num_failures = 0
        except Exception:
            # The edge of all running takes: they end with an error; later ones may succeed.
            _logger.exception("a round of the engine failed")
            self._num_failures += 1
            self._scheduler.fail_all(TakeFailed(), waiting=False)


def _capture_usual(batch: TakeBatch) -> None:
    """Capture the usual graphs before anybody waits for a frame, with a line for every tenth of them."""
    keys = batch.usual_graphs()
    if not keys:
        return
    started = time.monotonic()

    def report(num_done: int, num_all: int) -> None:
        seconds = time.monotonic() - started
        if num_done * 10 // num_all > (num_done - 1) * 10 // num_all and seconds > UNSAID_SECONDS:
            left = seconds / num_done * (num_all - num_done)
            # Shown by default: for seconds nothing else is.
            _logger.warning("preparing to speak: %d of %d graphs, %.0f s left", num_done, num_all, left)

    batch.capture(keys, report)
