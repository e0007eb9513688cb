"""Speech: a text of any length as takes of its pieces, spoken in order by one voice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from backend.errors import PromptError
from backend.serving.engine.engine import Engine
from backend.serving.speech.crossfade import Crossfader
from backend.serving.speech.segments import SegmentQueue
from backend.serving.speech.sentences import split_text
from training.model.decoding.frame_loop import FinishReason
from training.model.decoding.take_request import TakeRequest

MAX_TEXT_LENGTH = 100_000
"""Characters; about two hours of speech."""


@dataclass(frozen=True, kw_only=True)
class SpeechProgress:
    """How far a speech has come; pieces are whole sentences."""

    pieces_done: int
    num_pieces: int
    seconds_spoken: float
    wall_seconds: float
    share_done: float

    @property
    def seconds_left(self) -> float:
        """Estimate of the wall time still needed, from the pace so far."""
        if self.share_done <= 0:
            return float("inf")
        return self.wall_seconds * (1 - self.share_done) / self.share_done


@dataclass
class Speech:
    """Iterates over audio chunks; the fields are final once it is exhausted.

    Attributes:
        pieces: the text as it is spoken.
        sample_rate: of the chunks, in Hz.
        finish_reasons: of each piece, as far as spoken.
        seeds: of each piece.
        num_samples: samples produced so far.
        seconds_to_first_audio: from the start of iteration to the first decoded frame, which a listener hears when
            streaming; otherwise the audio is handed out once its piece is whole.
        wall_seconds: from the start of iteration to the last chunk so far.
    """

    pieces: list[str]
    sample_rate: int
    chunks: Iterator[NDArray[np.float32]]
    finish_reasons: list[FinishReason] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    num_samples: int = 0
    seconds_to_first_audio: float = 0.0
    wall_seconds: float = 0.0

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return self.chunks

    @property
    def seconds(self) -> float:
        """Duration of the audio so far."""
        return self.num_samples / self.sample_rate

    @property
    def real_time_factor(self) -> float:
        """Wall time per second of audio; below 1 is faster than listening."""
        return self.wall_seconds / self.seconds if self.num_samples else float("inf")

    @property
    def finish_reason(self) -> FinishReason:
        """The worst of the pieces': cancelled, then length, then eos."""
        for reason in (FinishReason.CANCELLED, FinishReason.LENGTH):
            if reason in self.finish_reasons:
                return reason
        return FinishReason.EOS if len(self.finish_reasons) == len(self.pieces) else FinishReason.CANCELLED

    def progress(self) -> SpeechProgress:
        """Where it stands, measured in characters of finished pieces."""
        done = len(self.finish_reasons)
        characters = [len(piece) for piece in self.pieces]
        return SpeechProgress(
            pieces_done=done,
            num_pieces=len(self.pieces),
            seconds_spoken=self.seconds,
            wall_seconds=self.wall_seconds,
            share_done=sum(characters[:done]) / sum(characters),
        )


def check_text(text: str) -> None:
    """Refuse what no model can speak. Raises PromptError."""
    if len(text) > MAX_TEXT_LENGTH:
        raise PromptError(f"The text has {len(text)} characters; {MAX_TEXT_LENGTH} are the most. Split it.")
    if not text.strip():
        raise PromptError("There is no text to speak. Write at least one word.")


def speak(
    engine: Engine,
    request: TakeRequest,
    *,
    streaming: bool,
    cancelled: Callable[[], bool] | None = None,
) -> Speech:
    """Speak a text of any length with one voice.

    With a seed every piece is spoken with it; without one each draws its own, told in `Speech.seeds`. A piece that
    runs away is tried once more with another seed, if none was asked for and nobody has heard it yet.

    Args:
        engine: holds the model that speaks.
        request: voice, sampling, seed and the whole text.
        streaming: hand audio out frame by frame; otherwise piece by piece.
        cancelled: asked before every frame.

    Raises:
        PromptError: at once, when there is no text or too much of it, or it cannot be spoken.
        TooBusy: at once, when too many are waiting; a speech that has begun is not turned away later.
    """
    check_text(request.text)
    requests = [replace(request, text=piece) for piece in split_text(request.text)]
    for piece in requests:
        engine.check(piece)
    speech = Speech(pieces=[piece.text for piece in requests], sample_rate=engine.sample_rate, chunks=iter(()))
    pieces = SegmentQueue(engine, requests, streaming=streaming, cancelled=cancelled)
    speech.chunks = _run(pieces, speech, cancelled or _never)
    return speech


def _never() -> bool:
    return False


def _run(pieces: SegmentQueue, speech: Speech, cancelled: Callable[[], bool]) -> Iterator[NDArray[np.float32]]:
    started = time.perf_counter()
    joiner = Crossfader(speech.sample_rate)

    def heard(samples: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """Count samples on their way to the listener."""
        speech.wall_seconds = time.perf_counter() - started
        if len(samples):
            speech.num_samples += len(samples)
            speech.seconds_to_first_audio = speech.seconds_to_first_audio or speech.wall_seconds
            yield samples

    with closing(pieces):
        for piece in pieces:
            reason = None
            for chunk in pieces.sound_of(piece):
                if cancelled():
                    # What was made ahead is dropped: stopped is stopped, however far the engine has come.
                    reason = FinishReason.CANCELLED
                    break
                # A piece that is handed out whole could still have been heard from its first frame on.
                speech.seconds_to_first_audio = speech.seconds_to_first_audio or piece.stream.seconds_to_first_audio
                yield from heard(joiner.add(chunk))
            reason = reason or piece.stream.finish_reason
            assert reason is not None
            speech.seeds.append(piece.stream.seed)
            speech.finish_reasons.append(reason)
            yield from heard(joiner.end_piece())
            if reason is FinishReason.CANCELLED:
                break
        yield from heard(joiner.finish())
