"""A text of any length as a stream of audio, segment after segment, by one voice."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from backend.provenance.statement import SpeechStatement
from backend.serving.engine.engine import Engine
from backend.serving.engine.frame_pace import lead_seconds
from backend.serving.engine.running_take import LIVE_CHUNK_FRAMES
from backend.serving.engine.take_timeline import TakeTimeline
from backend.serving.speech.crossfade import CROSSFADE_SECONDS
from backend.serving.speech.engine_source import EngineSource
from backend.serving.speech.speech_source import SpeechSource
from backend.takes.errors import TakeTooShort
from backend.takes.parts import TOO_SHORT_SHARE, Pace, TakePart, doubtful, said_so_far
from backend.takes.take import TakeFacts, TakeOrigin
from backend.watermark.pattern import STEP_SECONDS
from training.model.generation.finish_reason import FinishReason
from training.model.generation.take_request import TakeRequest
from training.model.prompt.length import FRAMES_PER_SECOND

_EAGERNESS = 3.0
"""How soon a new guess at the time left counts in full: after a third of the time that it has taken so far."""

_LEAST_SECONDS_TO_GUESS = 1.0
"""Of speech: before that nothing is known about the machine."""

_MOST_OF_A_SEGMENT = 0.95
"""A segment that takes longer than its text needs is not over before it ends."""

_MARKED_BEHIND_SECONDS = 2 * STEP_SECONDS
"""At most so much of the sound waits for what follows it to be marked."""


@dataclass(frozen=True, kw_only=True)
class SpeechProgress:
    """How much of a text has been spoken; segments are whole sentences.

    Attributes:
        share_done: by characters, those of the segment that is being spoken as far as it has come.
        seconds_left: estimate of the wall time still needed; infinite before the first sound.
        lead_seconds: sound to have in hand before playing, by the speed that was measured; 0: the first that comes will
            do, None: nothing was measured yet.
        doubtful_parts: numbers of finished parts that have probably lost words.
    """

    segments_done: int
    num_segments: int
    seconds_spoken: float
    wall_seconds: float
    share_done: float
    seconds_left: float
    lead_seconds: float | None = None
    doubtful_parts: tuple[int, ...] = ()


class AudioStream(Iterator[NDArray[np.float32]]):
    """Iterates over the audio of a text while it is made, here or elsewhere; any one thread at a time may do so.

    With a seed every segment is spoken with it; without one each draws its own, see `seeds`. A segment that runs away
    (reaches its cap) is spoken once more with another seed, if none was asked for and it has not been played yet.

    Close it, or use `contextlib.closing`, when the rest is not wanted: that frees the engine at once.

    Attributes:
        plan: what is spoken.
        state: how far the source of the sound has come.
        origin: who asked for it, and whose voice it is; None where nobody needs to know.
        seeds: of each segment spoken so far.
        finish_reasons: the same.
    """

    def __init__(
        self, source: SpeechSource, *, origin: TakeOrigin | None = None, release: Callable[[], object] | None = None
    ) -> None:
        """Begin to listen.

        Args:
            source: makes the sound.
            origin: what `facts` needs to know beyond the plan.
            release: called once at the end, however it ends.
        """
        self.plan, self.state, self.origin = source.plan, source.state, origin
        self._cancel = source.cancel
        self._started = source.started
        self._wall_seconds = 0.0
        self.seeds, self.finish_reasons = self.state.seeds, self.state.finish_reasons
        self._pace = Pace(self.plan.language, self.plan.reference)
        self._parts: list[TakePart] = []
        self._time_left = TimeLeft()
        self._num_chunks = 0
        self._chunks = source.chunks()
        # Also when it is dropped without a word: nothing in the source refers to it.
        self._end = weakref.finalize(self, _end, source, release)
        self._end.atexit = False

    @classmethod
    def of_engine(
        cls,
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
    ) -> Self:
        """Have an engine of this process speak: request the first segment.

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
        source = EngineSource(
            engine,
            request,
            streaming=streaming,
            speed=speed,
            cancelled=cancelled,
            client=client,
            voice_name=origin.voice if origin is not None else "",
            payload=payload,
        )
        return cls(source, origin=origin, release=release)

    def __next__(self) -> NDArray[np.float32]:
        """Wait for the next samples, never none. Raises EncoreError when speaking failed."""
        for piece in self.pieces():
            if len(piece):
                return piece
        raise StopIteration

    def pieces(self) -> Iterator[NDArray[np.float32]]:
        """The same samples, and none at all as a sign that more was made of what is handed out later.

        Raises:
            EncoreError: speaking failed.
        """
        while True:
            try:
                piece = next(self._chunks)
            except StopIteration:
                self._end()
                return
            except BaseException:
                self._end()
                raise
            finally:
                self._wall_seconds = time.perf_counter() - self._started
            self._num_chunks += bool(len(piece))
            yield piece

    def cancel(self) -> None:
        """End it, from any thread: the engine stops before its next frame, and iteration soon after."""
        self._cancel()

    def close(self) -> None:
        """End it from the thread that iterates, and free the engine at once. May be called twice."""
        self.cancel()
        self._chunks.close()
        self._end()

    @property
    def segments(self) -> tuple[str, ...]:
        """The text as it is split."""
        return self.plan.segments

    @property
    def sample_rate(self) -> int:
        """In Hz."""
        return self.plan.sample_rate

    @property
    def payload(self) -> int | None:
        """The number that the mark in the sound carries; None where it carries none."""
        return self.plan.payload

    @property
    def is_marked(self) -> bool:
        """Whether what is heard says that it was made."""
        return self.plan.is_marked

    @property
    def statement(self) -> SpeechStatement | None:
        """What its file says of itself; None where nothing is known about its origin."""
        return self.origin.statement if self.origin is not None else None

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
        return self.state.num_spoken

    @property
    def wall_seconds(self) -> float:
        """From the request to the last chunk so far."""
        return self._wall_seconds

    @property
    def seconds_to_first_audio(self) -> float:
        """From the request to the first decoded frame; without streaming, it is handed out later than that."""
        return self.state.seconds_to_first_audio

    @property
    def timelines(self) -> tuple[TakeTimeline, ...]:
        """When what happened to each segment that is over."""
        return tuple(self.state.timelines)

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
        state, rate = self.state, self.sample_rate
        for index in range(len(self._parts), len(state.finish_reasons)):
            text, seconds, reason = self.segments[index], state.lengths[index] / rate, state.finish_reasons[index]
            expected = self._pace.expected_seconds(text)
            if reason is FinishReason.CANCELLED:
                text = said_so_far(text, seconds / expected)
            part = TakePart(
                text=text,
                seed=state.seeds[index],
                finish_reason=reason,
                start_seconds=state.starts[index] / rate,
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
        num_words = len(self.plan.text.split())
        words = "1 word" if num_words == 1 else f"{num_words} words"
        cause = "Does the transcript match the recording?" if self.plan.is_in_context else "Speak it again."
        raise TakeTooShort(f"Too short ({self.seconds:.1f} s for {words}). {cause}")

    def progress(self) -> SpeechProgress:
        """How far it is, measured in characters: of finished segments, and of the one that is being spoken."""
        parts, state = self.parts, self.state
        characters = [len(segment) for segment in self.segments]
        needed = [self._pace.expected_seconds(segment) for segment in self.segments[len(parts) :]]
        num_spoken = float(sum(characters[: len(parts)]))
        if needed and len(state.starts) > len(parts):
            seconds = (state.num_stitched - state.starts[-1]) / self.sample_rate
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
            lead_seconds=self._lead_seconds(sum(needed)),
            doubtful_parts=tuple(number for number, _ in doubtful(parts)),
        )

    def _lead_seconds(self, needed_seconds: float) -> float | None:
        """See `SpeechProgress`; where playing has begun, for who has run dry and begins again."""
        if self.state.pace is None:
            return None
        # Chunks that have grown stay as they are; while they grow nobody plays yet, or begins again at once.
        num_played = self._num_chunks if self._num_chunks >= len(LIVE_CHUNK_FRAMES) else 0
        return lead_seconds(
            self.state.pace,
            needed_seconds if num_played else needed_seconds + self.seconds,
            sound_per_frame=1 / FRAMES_PER_SECOND,
            held_seconds=CROSSFADE_SECONDS + (_MARKED_BEHIND_SECONDS if self.is_marked else 0.0),
            num_chunks=num_played,
        )

    def facts(self) -> TakeFacts:
        """How the take was made; final once it is exhausted."""
        assert self.origin is not None
        plan = self.plan
        return TakeFacts(
            **dict(self.origin),
            text=plan.text,
            is_in_context=plan.is_in_context,
            language=plan.language,
            sampling=plan.sampling,
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


def _end(source: SpeechSource, release: Callable[[], object] | None) -> None:
    source.close()
    if release is not None:
        release()
