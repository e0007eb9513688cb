"""What is asked of the synthesizer, and what comes back, event by event; both travel between processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from backend.audio.formats import AudioFormat
from backend.errors import EncoreError
from backend.provenance.statement import SpeechStatement
from backend.serving.engine.take_timeline import TakeTimeline
from backend.serving.speech.speech_source import SpeechPlan, SpeechState
from backend.takes.take import TakeFacts, TakeOrigin
from backend.voices.consent import Consent
from backend.voices.voice import CloningMode, Voice
from training.model.sampling_settings import Sampling
from training.model.seed import Seed


class Reference(BaseModel):
    """A voice cloned from a recording, without being stored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """Shown with the take."""
    recording: Path | bytes = Field(repr=False)
    """A file, or a WAV that was decoded and written anew by this program; the voice of the latter is not cached."""
    transcript: str | None = None
    """What the recording says, word for word: clones in context; None clones from the speaker embedding alone."""
    consent: Consent | None = None
    checkpoint: Path | None = None
    """Clones it; None for the base model."""
    stored_checkpoint: str | None = None
    """Its name in the object storage, for machines that do not see it."""


class RunCheckpoint(BaseModel):
    """The fine-tuned speaker of an exported checkpoint of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    checkpoint: Path
    stored_checkpoint: str | None = None
    """Its name in the object storage, for machines that do not see it."""
    consent: Consent | None = None


class SynthesisRequest(BaseModel):
    """One text to be spoken by one voice."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    voice: Voice | Reference | RunCheckpoint
    mode: CloningMode | None = None
    """How a stored voice speaks; None for the mode meant for it."""
    text: str
    language: str = "auto"
    seed: Seed | None = None
    instruction: str = ""
    style: str = ""
    """One of a stored voice's styles, in any case; empty for none."""
    audio_format: AudioFormat = "wav"
    speed: float = 1.0
    is_streamed: bool = True
    """Hand audio out as it is made. Otherwise once a segment is whole, and runaway segments are tried again."""
    sampling: Sampling | None = None
    """None for the checkpoint's own."""
    sampling_changes: dict[str, int | float] = {}
    """Fields in which the take differs from that."""
    made_by: Literal["studio", "api", "command"] = "api"
    names_speaker: bool = False
    """Tell in the signed statement whose voice it is."""
    names_text: bool = False
    """Tell in the signed statement what is spoken."""
    mark: int | None = None
    """The number that its sound has to carry: that of the take it becomes a part of. None for one of its own."""
    client: str = ""
    """Who asks: an API key's digest, or an address. Slots and places are shared fairly between clients."""

    @property
    def is_fine_tuned(self) -> bool:
        """True if a fine-tuned checkpoint speaks."""
        if isinstance(self.voice, Voice):
            return self.voice.kind == "fine-tuned" and self.mode not in ("in-context", "x-vector")
        return isinstance(self.voice, RunCheckpoint)


@dataclass(frozen=True, kw_only=True)
class SpeechBegun:
    """The first event of a speech that can be spoken: what its file says of itself."""

    statement: SpeechStatement | None


@dataclass(frozen=True, kw_only=True)
class AudioChunk:
    """The next bytes of the file; the first ones say how much sound a player should have in hand, where it is known."""

    content: bytes
    lead_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class SpeechGoesOn:
    """More was made of what is handed out later: a sign of life for those who wait for it, and nothing to be heard."""


@dataclass(frozen=True, kw_only=True)
class SpeechSummary:
    """How it went; the last event of a speech that was not cancelled.

    Attributes:
        facts: about the take.
        sample_rate: in Hz.
        num_frames: length of the speech as the model speaks it.
        timelines: when what happened to each segment of the text.
        take_problem: why the take is not kept; empty where it is, or is not meant to be.
    """

    facts: TakeFacts
    sample_rate: int
    num_frames: int
    timelines: tuple[TakeTimeline, ...] = ()
    take_problem: str = ""


@dataclass(frozen=True, kw_only=True)
class SpeechFailure:
    """The last event of a speech that failed, for a reason to be shown to the user.

    A value rather than an exception, which would be wrapped in others on its way between processes.
    """

    error: EncoreError


SynthesisEvent = SpeechBegun | AudioChunk | SpeechGoesOn | SpeechSummary | SpeechFailure


@dataclass(frozen=True, kw_only=True)
class SoundBegun:
    """The first event of a speech that is handed on as samples: what is spoken, and for whom."""

    plan: SpeechPlan
    origin: TakeOrigin


@dataclass(frozen=True, kw_only=True)
class SoundChunk:
    """The next samples (samples,), and what has been added to the state since the event before; none at the end."""

    samples: NDArray[np.float32]
    added: SpeechState


SoundEvent = SoundBegun | SoundChunk | SpeechFailure
