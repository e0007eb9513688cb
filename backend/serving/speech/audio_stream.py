"""A text of any length as a stream of audio, segment after segment, by one voice."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from backend.audio.tempo import check_speed
from backend.errors import PromptError
from backend.provenance.statement import SpeechStatement
from backend.serving.engine.engine import Engine
from backend.serving.speech.finishing import Finisher
from backend.serving.speech.sayable import MAX_UNSAID, count_sayable, is_sayable
from backend.serving.speech.segments import SegmentQueue
from backend.serving.speech.sentences import split_text
from backend.takes.take import TakeFacts, TakeOrigin
from training.model.generation.frame_loop import FinishReason
from training.model.generation.take_request import TakeRequest

MAX_TEXT_LENGTH = 100_000
"""Characters; about two hours of speech."""


@dataclass(frozen=True, kw_only=True)
class SpeechProgress:
    """How much of a text has been spoken; segments are whole sentences."""

    segments_done: int
    num_segments: int
    seconds_spoken: float
    wall_seconds: float
    share_done: float

    @property
    def seconds_left(self) -> float:
        """Estimate of the wall time still needed, from the rate so far."""
        if self.share_done <= 0:
            return float("inf")
        return self.wall_seconds * (1 - self.share_done) / self.share_done


class AudioStream(Iterator[NDArray[np.float32]]):
    """Iterates over the audio of a text while it is made; any one thread at a time may do so.

    With a seed every segment is spoken with it; without one each draws its own, see `seeds`. A segment that runs away
    (reaches its cap) is spoken once more with another seed, if none was asked for and it has not been played yet.

    Close it, or use `contextlib.closing`, when the rest is not wanted: that frees the engine at once.

    Attributes:
        segments: the text as it is split.
        sample_rate: in Hz.
        seeds: of each segment spoken so far.
        finish_reasons: the same.
        payload: the number that the mark in the sound carries; None where it carries none.
        is_marked: whether what is heard says that it was made.
    """

    def __init__(
        self,
        engine: Engine,
        request: TakeRequest,
        *,
        streaming: bool,
        speed: float = 1.0,
        cancelled: Callable[[], bool] | None = None,
        origin: TakeOrigin | None = None,
        release: Callable[[], object] | None = None,
        client: str = "",
    ) -> None:
        """Request the first segment.

        Args:
            engine: holds the model that speaks.
            request: voice, sampling, seed and the whole text.
            streaming: hand audio out frame by frame; otherwise segment by segment.
            speed: 2 is twice as fast, at the same pitch.
            cancelled: asked before every frame.
            origin: what `facts` needs to know beyond the request.
            release: called once at the end, however it ends.
            client: who asks for it.

        Raises:
            PromptError: there is no text or too much of it, or it cannot be spoken.
            AudioFormatError: the speed is out of range.
            EngineBusy: the queue is full; a text that has begun is not refused later.
        """
        check_text(request.text)
        # A line of dashes between two paragraphs is a segment of its own.
        requests = [replace(request, text=segment) for segment in split_text(request.text) if is_sayable(segment)]
        for one in requests:
            engine.check(one)
        self.segments = [one.text for one in requests]
        self.sample_rate = engine.sample_rate
        self._request, self._origin, self._default_sampling = request, origin, engine.model.default_sampling
        self._cancellation = cancellation = threading.Event()
        self._started = time.perf_counter()
        self._wall_seconds = 0.0
        check_speed(speed)
        self._queue = SegmentQueue(
            engine,
            requests,
            streaming=streaming,
            cancelled=lambda: cancellation.is_set() or (cancelled is not None and cancelled()),
            client=client,
        )
        self.seeds, self.finish_reasons = self._queue.seeds, self._queue.finish_reasons
        self.payload = engine.mark.payload_of(
            (request.text, request.language, str(self._queue.first_seed), origin.voice if origin is not None else "")
        )
        marker = engine.mark.marker(self.sample_rate, self.payload)
        self.is_marked = marker is not None
        self._finisher = Finisher(self.sample_rate, speed=speed, marker=marker)
        self._chunks = self._finisher.finished(self._queue.stitched())
        # Also when it is dropped without a word: nothing that runs in the engine refers to it.
        self._end = weakref.finalize(self, _end, self._queue, release)
        self._end.atexit = False

    def __next__(self) -> NDArray[np.float32]:
        """Wait for the next samples, never none. Raises EncoreError when speaking failed."""
        try:
            chunk = next(self._chunks)
            while not len(chunk):
                chunk = next(self._chunks)
        except BaseException:
            self._end()
            raise
        finally:
            self._wall_seconds = time.perf_counter() - self._started
        return chunk

    def cancel(self) -> None:
        """End it, from any thread: the engine stops before its next frame, and iteration soon after."""
        self._cancellation.set()

    def close(self) -> None:
        """End it from the thread that iterates, and free the engine at once. May be called twice."""
        self.cancel()
        self._chunks.close()
        self._end()

    @property
    def statement(self) -> SpeechStatement | None:
        """What its file says of itself; None where nothing is known about its origin."""
        return self._origin.statement if self._origin is not None else None

    @property
    def comment(self) -> str:
        """The same for a comment tag."""
        return "" if self.statement is None else self.statement.as_comment()

    @property
    def seconds(self) -> float:
        """Duration of the speech so far, as the model speaks it."""
        return self.num_samples / self.sample_rate

    @property
    def num_samples(self) -> int:
        """Samples made so far, before they are played faster or slower."""
        return self._finisher.num_spoken

    @property
    def wall_seconds(self) -> float:
        """From the request to the last chunk so far."""
        return self._wall_seconds

    @property
    def seconds_to_first_audio(self) -> float:
        """From the request to the first decoded frame; without streaming, it is handed out later than that."""
        return self._queue.seconds_to_first_audio

    @property
    def real_time_factor(self) -> float:
        """Wall time per second of audio; below 1 is faster than playback, 0 without audio."""
        return self._wall_seconds / self.seconds if self.num_samples else 0.0

    @property
    def finish_reason(self) -> FinishReason:
        """The worst of the segments': cancelled, then length, then eos."""
        for reason in (FinishReason.CANCELLED, FinishReason.LENGTH):
            if reason in self.finish_reasons:
                return reason
        return FinishReason.EOS if len(self.finish_reasons) == len(self.segments) else FinishReason.CANCELLED

    def progress(self) -> SpeechProgress:
        """How far it is, measured in characters of finished segments."""
        done = len(self.finish_reasons)
        characters = [len(segment) for segment in self.segments]
        return SpeechProgress(
            segments_done=done,
            num_segments=len(self.segments),
            seconds_spoken=self.seconds,
            wall_seconds=self._wall_seconds,
            share_done=sum(characters[:done]) / sum(characters),
        )

    def facts(self) -> TakeFacts:
        """How the take was made; final once it is exhausted."""
        assert self._origin is not None
        request = self._request
        return TakeFacts(
            **dict(self._origin),
            text=request.text,
            is_in_context=request.voice.is_in_context,
            language=request.language,
            sampling=None if request.sampling == self._default_sampling else request.sampling,
            seeds=tuple(self.seeds),
            seconds=self.seconds,
            real_time_factor=self.real_time_factor,
            seconds_to_first_audio=self.seconds_to_first_audio,
            finish_reason=self.finish_reason,
            mark=self.payload,
        )


def check_text(text: str) -> None:
    """Refuse what no model can speak. Raises PromptError."""
    if len(text) > MAX_TEXT_LENGTH:
        raise PromptError(f"The text has {len(text)} characters; the limit is {MAX_TEXT_LENGTH}. Split it.")
    if not text.strip():
        raise PromptError("There is no text to speak. Write at least one word.")
    num_said, num_unsaid = count_sayable(text)
    if not num_said:
        raise PromptError("Nothing in the text can be said: it has no letter and no digit. Write at least one word.")
    if num_unsaid > num_said + MAX_UNSAID:
        raise PromptError(
            f"{num_unsaid} of the text's {len(text)} characters cannot be said: dots and other signs, invisible or "
            "combining characters. Leave most of them out."
        )


def _end(queue: SegmentQueue, release: Callable[[], object] | None) -> None:
    queue.close()
    if release is not None:
        release()
