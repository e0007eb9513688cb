"""Speech made by an engine of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from backend.audio.speed import check_speed
from backend.serving.engine.engine import Engine
from backend.serving.speech.finishing import Finisher
from backend.serving.speech.sayable import is_sayable
from backend.serving.speech.segments import SegmentQueue
from backend.serving.speech.sentences import split_text
from backend.serving.speech.speech_source import SpeechPlan, SpeechState
from backend.serving.speech.text_check import check_text
from training.model.generation.take_request import TakeRequest


class EngineSource:
    """The segments of a text on their way through an engine, with the mark in their sound.

    Attributes:
        started: when it was asked for, on the clock of `time.perf_counter`.
        plan: what is spoken.
        state: how far it has come.
    """

    def __init__(
        self,
        engine: Engine,
        request: TakeRequest,
        *,
        streaming: bool,
        speed: float = 1.0,
        cancelled: Callable[[], bool] | None = None,
        client: str = "",
        voice_name: str = "",
        payload: int | None = None,
    ) -> None:
        """Request the first segment; see `AudioStream.of_engine`."""
        requests = _split_request(request, engine)
        self.started = time.perf_counter()
        check_speed(speed)
        self._cancellation = cancellation = threading.Event()
        self.state = SpeechState()
        self._queue = SegmentQueue(
            engine,
            requests,
            self.state,
            streaming=streaming,
            cancelled=lambda: cancellation.is_set() or (cancelled is not None and cancelled()),
            client=client,
        )
        if payload is None:
            said = (request.text, request.language, str(self._queue.first_seed), voice_name)
            payload = engine.mark.payload_of(said)
        marker = engine.mark.marker(engine.sample_rate, payload)
        self._finisher = Finisher(engine.sample_rate, self.state, speed=speed, marker=marker)
        default = engine.model.default_sampling
        self.plan = SpeechPlan(
            text=request.text,
            segments=tuple(one.text for one in requests),
            language=request.language,
            is_in_context=request.voice.is_in_context,
            reference=_reference_of(request, engine),
            sampling=None if request.sampling == default else request.sampling,
            sample_rate=engine.sample_rate,
            payload=payload,
            is_marked=marker is not None,
        )

    def chunks(self) -> Generator[NDArray[np.float32]]:
        """The sound (samples,) as it is made; chunks may be empty. Raises EncoreError."""
        return self._finisher.finished(self._queue.stitched())

    def cancel(self) -> None:
        """End it, from any thread: the engine stops before its next frame."""
        self._cancellation.set()

    def close(self) -> None:
        """Free the engine."""
        self._queue.close()


def _split_request(request: TakeRequest, engine: Engine) -> list[TakeRequest]:
    """One request for each segment of the text, all checked. Raises PromptError."""
    check_text(request.text)
    # A line of dashes between two paragraphs is a segment of its own.
    requests = [replace(request, text=segment) for segment in split_text(request.text) if is_sayable(segment)]
    for one in requests:
        engine.check(one)
    return requests


def _reference_of(request: TakeRequest, engine: Engine) -> tuple[str, float] | None:
    """What the recording says, and how long it takes; None where only its sound is known."""
    voice = request.voice
    if voice.reference_codes is None or not voice.reference_text:
        return None
    return voice.reference_text, len(voice.reference_codes) / engine.model.speech_tokenizer.config.frame_rate_hz
