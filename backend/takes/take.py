"""A take: one text as one voice spoke it, with everything that is needed to understand it or make it again."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from backend.audio.formats import AudioFormat
from backend.serving.speech.speech import Speech
from backend.voices.consent import Consent
from training.model.decoding.frame_loop import FinishReason
from training.model.decoding.take_request import TakeRequest
from training.model.sampling import Sampling


class TakeFacts(BaseModel):
    """How a take was made.

    Attributes:
        made_by: the page, the API, or a command.
        voice: what spoke, as people call it: a recording's name, or a voice's.
        is_in_context: whether the reference's words were known.
        is_fine_tuned: whether a fine-tuned checkpoint spoke.
        sampling: None where the checkpoint's own was used.
        seeds: one per piece of the text; all the same where one was asked for.
        consent: of whoever's voice it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    made_by: Literal["studio", "api", "command"]
    voice: str
    text: str
    model_name: str
    is_in_context: bool
    is_fine_tuned: bool
    language: str
    sampling: Sampling | None
    seeds: tuple[int, ...]
    seconds: float
    real_time_factor: float
    seconds_to_first_audio: float
    finish_reason: FinishReason
    consent: Consent | None
    audio_format: AudioFormat = "wav"
    speed: float = 1.0


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


def facts_of(
    speech: Speech,
    request: TakeRequest,
    *,
    made_by: Literal["studio", "command"],
    voice: str,
    model_name: str,
    default_sampling: Sampling,
    consent: Consent | None,
) -> TakeFacts:
    """Write down how a speech went, once its chunks are exhausted."""
    is_default = request.sampling is None or request.sampling == default_sampling
    return TakeFacts(
        made_by=made_by,
        voice=voice,
        text=request.text,
        model_name=model_name,
        is_in_context=request.voice.is_in_context,
        is_fine_tuned=request.voice.speaker_name is not None,
        language=request.language,
        sampling=None if is_default else request.sampling,
        seeds=tuple(speech.seeds),
        seconds=speech.seconds,
        real_time_factor=speech.real_time_factor,
        seconds_to_first_audio=speech.seconds_to_first_audio,
        finish_reason=speech.finish_reason,
        consent=consent,
    )
