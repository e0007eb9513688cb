"""What each stage returns, as it is kept between builds and passed between processes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from backend.audio.span import Span
from backend.dataset.clips.encoded_clip import TENSORS_SUFFIX
from backend.dataset.clips.measures import SoundMeasures
from backend.transcription.transcript import Transcript

TextSource = Literal["whisper", "file", "person", "none"]


WAV_SUFFIX = ".wav"

Artifact = tuple[str, str]
"""Hash and suffix of a stored file."""


class _Record(BaseModel):
    # A transcriber that could not hear at all has a log probability of minus infinity, which JSON has no number for.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class StageResult(_Record):
    """What a stage returns; worth nothing once one of its artefacts is gone."""

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The files that it refers to."""
        return ()


class DecodedRecording(StageResult):
    """A recording as canonical sound on our disk; where `problem` is not empty, nothing else counts."""

    problem: str = ""
    audio_id: str = ""
    """Artefact with 24 kHz mono PCM16; the original is not kept."""
    seconds: float = 0.0
    speech: tuple[Span, ...] = ()
    """Where voice activity was found."""
    made_by_encore: bool = False
    """Whether the file says of itself that it is synthetic speech of Encore's."""

    @property
    @override
    def artifacts(self) -> tuple[Artifact, ...]:
        return () if self.problem else ((self.audio_id, WAV_SUFFIX),)


class HeardPiece(StageResult):
    """The transcript of a stretch of a recording; times count from the start of the recording."""

    span: Span
    transcript: Transcript


class CutClip(_Record):
    """One clip: cut, evened out in loudness, stored.

    Attributes:
        span: in the recording, with its padding.
        clip_id: artefact with the clip's WAV.
        sound: measured before the loudness was evened out.
        text: what is said; None if it is not known.
        heard: the transcript, if there is one.
        heard_words: its words, each with how sure the transcriber was of it.
        transcriber: who heard it; empty where nobody did, and in datasets of earlier versions.
        confidence: of the transcriber, 0 to 1.
        doubt: why the transcript should not be trusted; empty if it can be.
    """

    span: Span
    clip_id: str
    seconds: float
    sound: SoundMeasures
    text: str | None
    text_source: TextSource
    language: str | None = None
    heard: str | None = None
    heard_words: tuple[tuple[str, float], ...] = ()
    transcriber: str = ""
    confidence: float | None = None
    doubt: str = ""


class Lost(_Record):
    """Speech that is in no clip, and why."""

    span: Span
    problem: str


class CutRecording(StageResult):
    """A recording divided into clips, and what had to be left out."""

    clips: tuple[CutClip, ...]
    lost: tuple[Lost, ...] = ()
    problem: str = ""

    @property
    @override
    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple((clip.clip_id, WAV_SUFFIX) for clip in self.clips)


class TokenizedClip(StageResult):
    """Codes and speaker embedding of a clip, in an artefact of two tensors; see `EncodedClip`."""

    tensors_id: str
    num_frames: int

    @property
    @override
    def artifacts(self) -> tuple[Artifact, ...]:
        return ((self.tensors_id, TENSORS_SUFFIX),)


class EncoderFacts(_Record):
    """The model whose tokenizer and speaker encoder made the rows of a dataset.

    Attributes:
        identity: of all weights that encode; stored results depend on it.
        fingerprint: of the codebooks.
    """

    model: str
    folder: str
    identity: str
    fingerprint: str
    num_codebooks: int
