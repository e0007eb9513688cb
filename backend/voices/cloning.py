"""A zero-shot voice: what a model takes from one reference recording."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from backend.audio.recording import Recording
from backend.audio.resample import resample
from backend.voices.excerpt import find_excerpt
from training.model.generation.take_request import VoicePrompt
from training.model.generation.timbre_match import MAX_MATCHED_SECONDS, TimbreMatch, match_timbre
from training.model.prompt.reference import SILENCE_SECONDS, prepare_reference
from training.model.voice_model import VoiceModel

_logger = logging.getLogger(__name__)


def clone_voice(
    model: VoiceModel,
    recording: Recording,
    transcript: str | None = None,
    *,
    speaker: torch.Tensor | None = None,
) -> VoicePrompt:
    """Make a voice of a checked recording: in context with a transcript, from the speaker embedding without.

    Of a recording that is too long for the model, the first sentences are continued; where it is not sure what they
    are, the speaker embedding has to do, which always hears all of it.

    Args:
        model: the checkpoint.
        recording: what is cloned, or continued in the voice of `speaker`.
        transcript: what it says.
        speaker: the voice's own embedding, if it is another one than the recording's.

    Raises:
        PromptError: the checkpoint cannot clone.
    """
    samples, sample_rate = recording.samples, recording.sample_rate
    prepared = prepare_reference(samples, sample_rate)
    if speaker is None:
        speaker = model.embed_speaker(torch.from_numpy(resample(samples, sample_rate, model.speaker_sample_rate)))
    text = (transcript or "").strip()
    voice = VoicePrompt(speaker=speaker, timbre=timbre_of(model, speaker, recording, text))
    if not text:
        return voice
    longest = model.max_reference_seconds
    if longest is not None and len(prepared) / sample_rate - SILENCE_SECONDS > longest:
        excerpt = find_excerpt(samples, sample_rate, text, max_seconds=longest)
        if excerpt is None:
            _logger.info(
                "a recording of %.0f s is too long to continue, and no beginning of it is sure: its sound has to do",
                len(samples) / sample_rate,
            )
            return voice
        text = excerpt.transcript
        prepared = prepare_reference(samples[: round(excerpt.seconds * sample_rate)], sample_rate)
    return replace(voice, reference_codes=_encode(model, prepared, sample_rate), reference_text=text)


def timbre_of(model: VoiceModel, speaker: torch.Tensor, recording: Recording, text: str) -> TimbreMatch | None:
    """What moves takes to the timbre of a recording, of more of it than is continued: the longer, the surer.

    Args:
        model: the checkpoint.
        speaker: the voice's speaker embedding.
        recording: what the voice is cloned from.
        text: what it says; empty if that is not known.

    Returns:
        None where the checkpoint needs no matching, and for less than a second.
    """
    if not model.matches_timbre:
        return None
    prepared = prepare_reference(recording.samples, recording.sample_rate)
    num_samples = round(MAX_MATCHED_SECONDS * recording.sample_rate)
    # What a part of it says is not known.
    said = text if len(prepared) <= num_samples else ""
    return match_timbre(model, speaker, _encode(model, prepared[:num_samples], recording.sample_rate), said)


def _encode(model: VoiceModel, samples: NDArray[np.float32], sample_rate: int) -> torch.Tensor:
    return model.encode(torch.from_numpy(resample(samples, sample_rate, model.tokenizer_sample_rate)))
