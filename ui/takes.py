"""The takes of one session of the page: what was spoken, how, and where the file is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backend.serving.speech import Speech
from backend.studio import LoadedModel
from training.model.frame_loop import FinishReason
from training.model.sampling import Sampling
from training.model.take_request import TakeRequest


@dataclass(frozen=True, kw_only=True)
class SessionTake:
    """A finished take; plain values, so that it outlives the model that spoke it.

    Attributes:
        number: counts from 1 within the session.
        voice: what it was cloned from, as the page calls it.
        sampling: None where the checkpoint's own was used.
        seeds: one per piece of the text; all the same where one was asked for.
        path: the WAV file.
    """

    number: int
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
    path: Path


def finish_take(
    number: int, voice: str, loaded: LoadedModel, request: TakeRequest, speech: Speech, path: Path
) -> SessionTake:
    """Write down how a speech went, once its chunks are exhausted."""
    is_default = request.sampling is None or request.sampling == loaded.model.default_sampling
    return SessionTake(
        number=number,
        voice=voice,
        text=request.text,
        model_name=loaded.name,
        is_in_context=request.voice.is_in_context,
        is_fine_tuned=request.voice.speaker_name is not None,
        language=request.language,
        sampling=None if is_default else request.sampling,
        seeds=tuple(speech.seeds),
        seconds=speech.seconds,
        real_time_factor=speech.real_time_factor,
        seconds_to_first_audio=speech.seconds_to_first_audio,
        finish_reason=speech.finish_reason,
        path=path,
    )
