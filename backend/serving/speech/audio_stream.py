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
from backend.serving.engine.take_timeline import TakeTimeline
from backend.serving.speech.finishing import Finisher
from backend.serving.speech.sayable import MAX_UNSAID, count_sayable, is_sayable
from backend.serving.speech.segments import SegmentQueue
from backend.serving.speech.sentences import split_text
from backend.takes.errors import TakeTooShort
from backend.takes.parts import TOO_SHORT_SHARE, Pace, TakePart, doubtful, said_so_far
from backend.takes.take import TakeFacts, TakeOrigin
from training.model.generation.frame_loop import FinishReason
from training.model.generation.take_request import TakeRequest

MAX_TEXT_LENGTH = 100_000
"""Characters; about two hours of speech."""

_EAGERNESS = 3.0
"""How soon a new guess at the time left counts in full: after a third of the time that it has taken so far."""

_LEAST_SECONDS_TO_GUESS = 1.0
"""Of speech: before that nothing is known about the machine."""

_MOST_OF_A_SEGMENT = 0.95
"""A segment that takes longer than its text needs is not over before it ends."""


@dataclass(frozen=True, kw_only=True)
class SpeechProgress:
    """How much of a text has been spoken; segments are whole sentences.

    Attributes:
        share_done: by characters, those of the segment that is being spoken as far as it has come.
        seconds_left: estimate of the wall time still needed; infinite before the first sound.
        doubtful_parts: numbers of finished parts that have probably lost words.
    """

    segments_done: int
    num_segments: int
    seconds_spoken: float
    wall_seconds: float
    share_done: float
    seconds_left: float
    doubtful_parts: tuple[int, ...] = ()


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
        payload: int | None = None,
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
            payload: the number for the mark in the sound, where it becomes a part of another take.

        Raises:
            PromptError: there is no text or too much of it, or it cannot be spoken.
            AudioFormatError: the speed is out of range.
            EngineBusy: the queue is full; a text that has begun is not refused later.
        """
        requests = _split_request(request, engine)
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
        self._pace = Pace(request.language, _reference_of(request, engine))
        self._parts: list[TakePart] = []
        self._time_left = TimeLeft()
        self.payload = payload
        if payload is None:
            said = (request.text, request.language, str(self._queue.first_seed), origin.voice if origin else "")
            self.payload = engine.mark.payload_of(said)
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
    def timelines(self) -> tuple[TakeTimeline, ...]:
        """When what happened to each segment that is over."""
        return tuple(self._queue.timelines)

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

    @property
    def parts(self) -> tuple[TakePart, ...]:
        """The segments that are over, with what each needed; a part is judged as soon as it is."""
        queue, rate = self._queue, self.sample_rate
        for index in range(len(self._parts), len(queue.finish_reasons)):
            text, seconds, reason = self.segments[index], queue.lengths[index] / rate, queue.finish_reasons[index]
            expected = self._pace.expected_seconds(text)
            if reason is FinishReason.CANCELLED:
                text = said_so_far(text, seconds / expected)
            part = TakePart(
                text=text,
                seed=queue.seeds[index],
                finish_reason=reason,
                start_seconds=queue.starts[index] / rate,
                seconds=seconds,
                expected_seconds=expected,
            )
            self._parts.append(part)
            if reason is FinishReason.EOS and part.doubt is None:
                self._pace.learn(text, seconds)
        return tuple(self._parts)

    def check_length(self) -> None:
        """Refuse what cannot be its text, at the end of a take that was not stopped. Raises TakeTooShort."""
        needed = sum(part.expected_seconds for part in self.parts)
        if self.finish_reason is FinishReason.CANCELLED or self.seconds >= TOO_SHORT_SHARE * needed:
            return
        num_words = len(self._request.text.split())
        words = "1 word" if num_words == 1 else f"{num_words} words"
        cause = "Does the transcript match the recording?" if self._request.voice.is_in_context else "Speak it again."
        raise TakeTooShort(f"Too short ({self.seconds:.1f} s for {words}). {cause}")

    def progress(self) -> SpeechProgress:
        """How far it is, measured in characters: of finished segments, and of the one that is being spoken."""
        parts, queue = self.parts, self._queue
        characters = [len(segment) for segment in self.segments]
        needed = [self._pace.expected_seconds(segment) for segment in self.segments[len(parts) :]]
        num_spoken = float(sum(characters[: len(parts)]))
        if needed and len(queue.starts) > len(parts):
            seconds = (queue.num_samples - queue.starts[-1]) / self.sample_rate
            share = min(seconds / needed[0], _MOST_OF_A_SEGMENT)
            num_spoken += share * characters[len(parts)]
            needed[0] *= 1 - share
        seconds_left = 0.0 if not needed else float("inf")
        if needed and self.seconds >= _LEAST_SECONDS_TO_GUESS:
            so_far = max(self._wall_seconds - self.seconds_to_first_audio, 0.0)
            seconds_left = self._time_left.estimate(sum(needed) * so_far / self.seconds, so_far)
        return SpeechProgress(
            segments_done=len(parts),
            num_segments=len(self.segments),
            seconds_spoken=self.seconds,
            wall_seconds=self._wall_seconds,
            share_done=num_spoken / sum(characters),
            seconds_left=seconds_left,
            doubtful_parts=tuple(number for number, _ in doubtful(parts)),
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
            parts=self.parts,
        )


class TimeLeft:
    """The time that speaking still takes, without the jumps that every new guess would make."""

    def __init__(self) -> None:
        self._total, self._before = 0.0, 0.0

    def estimate(self, guess_seconds: float, seconds_so_far: float) -> float:
        """Seconds left where a fresh guess says `guess_seconds`; may be called as often as there is one."""
        total = seconds_so_far + guess_seconds
        if self._before > 0:
            # A guess counts for as long as it has held.
            weight = min(_EAGERNESS * max(seconds_so_far - self._before, 0.0) / max(seconds_so_far, 1e-9), 1.0)
            total = self._total + weight * (total - self._total)
        self._total, self._before = total, seconds_so_far
        return max(total - seconds_so_far, 0.0)


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


def _end(queue: SegmentQueue, release: Callable[[], object] | None) -> None:
    queue.close()
    if release is not None:
        release()
