"""A take: one text as one voice spoke it, with everything that is needed to understand it or make it again."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from backend.audio.formats import AudioFormat
from backend.provenance.statement import SpeechStatement
from backend.takes.parts import TakePart, doubtful
from backend.voices.consent import Consent
from backend.voices.voice import CloningMode
from training.model.generation.finish_reason import FinishReason
from training.model.sampling_settings import Sampling


class SpokenFrom(BaseModel):
    """What a part is spoken from again: a voice of the library, or a recording as long as it is there.

    Attributes:
        voice_id: of a voice of the library; empty for a recording.
        recording: with its hash, so that another file of that name does not speak.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    voice_id: str = ""
    mode: CloningMode | None = None
    recording: Path | None = None
    recording_sha256: str = ""
    transcript: str | None = None
    instruction: str = ""
    style: str = ""


class TakeOrigin(BaseModel):
    """Where a take comes from: who asked for it, and whose voice it is.

    Attributes:
        made_by: the page, the API, or a command.
        voice: its name, or that of the recording.
        model_name: the base model, or the voice whose own checkpoint spoke.
        is_fine_tuned: whether a fine-tuned checkpoint spoke.
        consent: of the person whose voice it is.
        statement: what its file says of itself; None for takes of earlier versions.
        style: of the voice; empty for none, and for takes of earlier versions.
        spoken_from: what speaks a part of it again; None where that is not kept, and for takes of earlier versions.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    made_by: Literal["studio", "api", "command"]
    voice: str
    model_name: str
    is_fine_tuned: bool
    consent: Consent | None
    statement: SpeechStatement | None = None
    audio_format: AudioFormat = "wav"
    speed: float = 1.0
    spoken_from: SpokenFrom | None = None
    style: str = ""


class TakeFacts(TakeOrigin):
    """How a take was made.

    Attributes:
        text: all that was to be said; see `spoken_text`.
        is_in_context: whether the reference's words were known.
        sampling: None where the checkpoint's own was used.
        seeds: one per segment of the text; all the same where one was asked for.
        is_signed: whether the statement is signed into the file.
        mark: the number that the mark in the sound carries, and by which the take is found again; None without one.
    """

    text: str
    is_in_context: bool
    language: str
    sampling: Sampling | None
    seeds: tuple[int, ...]
    seconds: float
    real_time_factor: float
    seconds_to_first_audio: float
    finish_reason: FinishReason
    is_signed: bool = False
    mark: int | None = None
    parts: tuple[TakePart, ...] = ()
    """None of takes of earlier versions."""

    @property
    def spoken_text(self) -> str:
        """The text as far as it was spoken."""
        if self.finish_reason is not FinishReason.CANCELLED or not self.parts:
            return self.text
        return " ".join(part.text for part in self.parts)

    @property
    def doubtful_parts(self) -> list[tuple[int, TakePart]]:
        """Parts to listen to, with their numbers from 1."""
        return doubtful(self.parts)


class Take(TakeFacts):
    """A take that is kept.

    Attributes:
        number: counts from 1 within the list it is in.
        path: of the sound.
    """

    id: str
    owner: str
    number: int
    made_at: datetime
    num_bytes: int
    path: Path
