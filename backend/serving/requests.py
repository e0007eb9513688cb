"""What is asked of whoever speaks, and what comes back, piece by piece; both travel between processes."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from backend.audio.formats import AudioFormat
from backend.errors import EncoreError
from backend.voices.consent import Consent
from backend.voices.voice import Voice
from training.model.sampling import Sampling


class OneOffVoice(BaseModel):
    """A voice cloned for one request and then forgotten."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reference_wav: bytes = Field(repr=False)
    """The reference as it was decoded and written anew here."""
    transcript: str | None = None
    consent: Consent


class SynthesisRequest(BaseModel):
    """One text to be spoken by one voice."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    voice: Voice | OneOffVoice
    text: str
    language: str = "auto"
    seed: int | None = None
    instruction: str = ""
    audio_format: AudioFormat = "wav"
    speed: float = 1.0
    is_streamed: bool = True
    """Hand sound out as it is made. Otherwise once a piece is whole, and runaway pieces are tried again."""
    sampling: Sampling | None = None


@dataclass(frozen=True, kw_only=True)
class AudioChunk:
    """The next bytes of the file."""

    content: bytes


@dataclass(frozen=True, kw_only=True)
class SpeechSummary:
    """How it went; the last thing that comes of a speech.

    Attributes:
        seconds: duration of the speech before its tempo is changed.
        sample_rate: in Hz.
        finish_reason: `eos`, or `length` where a piece ran into its cap.
        seeds: of each piece.
        seconds_to_first_audio: from the order to the first sound.
        wall_seconds: from the order to the last sound.
        num_characters: length of the text.
        num_frames: length of the speech as the model speaks it.
    """

    seconds: float
    sample_rate: int
    finish_reason: str
    seeds: tuple[int, ...]
    seconds_to_first_audio: float
    wall_seconds: float
    num_characters: int
    num_frames: int

    @property
    def real_time_factor(self) -> float:
        """Wall time per second of audio; below 1 is faster than listening."""
        return self.wall_seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class SpeechFailure:
    """There is no more, for a reason that a person may read.

    A value and no exception: on its way between processes an exception would be wrapped in others.
    """

    error: EncoreError


SpeechItem = AudioChunk | SpeechSummary | SpeechFailure
