"""What each stage finds out, as it is kept between builds and handed from process to process."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from backend.dataset.clips.measures import SoundMeasures
from backend.transcription.transcript import Transcript

TextSource = Literal["whisper", "file", "person", "none"]


class _Record(BaseModel):
    # A transcriber that could not hear at all has a log probability of minus infinity, which JSON has no number for.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class Span(_Record):
    """A stretch of a recording, in seconds."""

    start_seconds: float
    end_seconds: float


class DecodedRecording(_Record):
    """A recording as canonical sound on our disk; where `problem` is not empty, nothing else counts."""

    problem: str = ""
    audio_id: str = ""
    """Artefact with 24 kHz mono PCM16; the original is not kept."""
    seconds: float = 0.0
    speech: tuple[Span, ...] = ()
    """Where voice activity was found."""


class HeardPiece(_Record):
    """What the transcriber heard in a stretch of a recording; times count from the start of the recording."""

    span: Span
    transcript: Transcript


class CutClip(_Record):
    """One clip: cut, evened out in loudness, stored.

    Attributes:
        span: in the recording, with its padding.
        clip_id: artefact with the clip's WAV.
        sound: measured before the loudness was evened out.
        text: what is said; None where nobody knows.
        heard: what a transcriber heard, where one listened.
        confidence: of the transcriber.
        doubt: why the transcriber should not be believed; empty where it should.
    """

    span: Span
    clip_id: str
    seconds: float
    sound: SoundMeasures
    text: str | None
    text_source: TextSource
    language: str | None = None
    heard: str | None = None
    confidence: float | None = None
    doubt: str = ""


class Lost(_Record):
    """Speech that is in no clip, and why."""

    span: Span
    problem: str


class CutRecording(_Record):
    """A recording divided into clips, and what had to be left out."""

    clips: tuple[CutClip, ...]
    lost: tuple[Lost, ...] = ()
    problem: str = ""


class TokenizedClip(_Record):
    """Codes and speaker embedding of a clip, in an artefact of two tensors; see `clip_encoder`."""

    tensors_id: str
    num_frames: int


class EncoderFacts(_Record):
    """The model whose tokenizer and speaker encoder made the rows of a dataset.

    Attributes:
        identity: of all weights that listen; stored results depend on it.
        fingerprint: of the codebooks.
    """

    model: str
    folder: str
    identity: str
    fingerprint: str
    num_codebooks: int
