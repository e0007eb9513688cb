"""Speech: a text of any length as takes of its pieces, spoken in order by one voice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from backend.errors import PromptError
from backend.serving.sentences import split_text
from training.model.frame_loop import FinishReason
from training.model.take import Synthesizer
from training.model.take_request import TakeRequest

LONGEST_TEXT = 100_000
"""Characters; about two hours of speech."""

EDGE_SECONDS = 0.005
"""Fade at both ends of a piece, so that two pieces meet without a click."""


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
    if len(text) > LONGEST_TEXT:
        raise PromptError(f"The text has {len(text)} characters; {LONGEST_TEXT} are the most. Split it.")
    if not text.strip():
        raise PromptError("There is no text to speak. Write at least one word.")


def speak(
    synthesizer: Synthesizer,
    request: TakeRequest,
    *,
    streaming: bool,
    cancelled: Callable[[], bool] | None = None,
) -> Speech:
    """Speak a text of any length with one voice.

    With a seed every piece is spoken with it; without one each draws its own, told in `Speech.seeds`.

    Args:
        synthesizer: the loaded model.
        request: voice, sampling, seed and the whole text.
        streaming: hand audio out frame by frame. Otherwise piece by piece, and a piece that runs away is tried
            again with another seed, if none was asked for.
        cancelled: asked before every frame.

    Raises:
        PromptError: at once, when there is no text or too much of it, or it cannot be spoken.
    """
    check_text(request.text)
    pieces = split_text(request.text)
    requests = [replace(request, text=piece) for piece in pieces]
    for piece in requests:
        synthesizer.check(piece)
    speech = Speech(pieces=pieces, sample_rate=synthesizer.model.sample_rate, chunks=iter(()))
    speech.chunks = _run(synthesizer, requests, speech, streaming, cancelled)
    return speech


def _run(
    synthesizer: Synthesizer,
    requests: list[TakeRequest],
    speech: Speech,
    streaming: bool,
    cancelled: Callable[[], bool] | None,
) -> Iterator[NDArray[np.float32]]:
    started = time.perf_counter()
    for request in requests:
        piece = _stream_piece if streaming else _speak_piece
        for chunk in piece(synthesizer, request, speech, cancelled):
            speech.num_samples += len(chunk)
            speech.wall_seconds = time.perf_counter() - started
            speech.seconds_to_first_audio = speech.seconds_to_first_audio or speech.wall_seconds
            yield chunk
        speech.wall_seconds = time.perf_counter() - started
        if speech.finish_reasons and speech.finish_reasons[-1] is FinishReason.CANCELLED:
            return


def _stream_piece(
    synthesizer: Synthesizer, request: TakeRequest, speech: Speech, cancelled: Callable[[], bool] | None
) -> Iterator[NDArray[np.float32]]:
    stream = synthesizer.stream(request, cancelled)
    speech.seeds.append(stream.seed)
    first = True
    # Closed when a listener leaves in the middle: the stream and its chunks refer to each other, so its slot would
    # stay taken until the garbage collector comes by.
    with closing(stream):
        for chunk in stream:
            yield _fade(chunk, speech.sample_rate, fade_in=first)
            first = False
    assert stream.finish_reason is not None
    speech.finish_reasons.append(stream.finish_reason)


def _speak_piece(
    synthesizer: Synthesizer, request: TakeRequest, speech: Speech, cancelled: Callable[[], bool] | None
) -> Iterator[NDArray[np.float32]]:
    take = synthesizer.speak(request, cancelled)
    # The piece is handed out whole, but what it can do streaming is worth knowing.
    speech.seconds_to_first_audio = speech.seconds_to_first_audio or take.seconds_to_first_audio
    speech.seeds.append(take.seed)
    speech.finish_reasons.append(take.finish_reason)
    if len(take.waveform):
        yield _fade(take.waveform, speech.sample_rate, fade_in=True, fade_out=True)


def _fade(
    chunk: NDArray[np.float32], sample_rate: int, *, fade_in: bool = False, fade_out: bool = False
) -> NDArray[np.float32]:
    length = min(round(EDGE_SECONDS * sample_rate), len(chunk))
    ramp = np.linspace(0.0, 1.0, length, dtype=np.float32)
    faded = chunk.copy()
    if fade_in:
        faded[:length] *= ramp
    if fade_out:
        faded[len(faded) - length :] *= ramp[::-1]
    return faded
