"""A zero-shot voice: what a model takes from one reference recording."""

from __future__ import annotations

import logging

import torch

from backend.audio.recording import Recording
from backend.audio.resample import resample
from backend.voices.excerpt import find_excerpt
from training.model.generation.take_request import VoicePrompt
from training.model.prompt.reference import SILENCE_SECONDS, prepare_reference
from training.model.voice_model import VoiceModel

_logger = logging.getLogger(__name__)


def clone_voice(model: VoiceModel, recording: Recording, transcript: str | None = None) -> VoicePrompt:
    """Make a voice of a checked recording: in context with a transcript, from the speaker embedding without.

    Of a recording that is too long for the model, the first sentences are continued; where it is not sure what they
    are, the speaker embedding has to do, which always hears all of it.

    Raises:
        PromptError: the checkpoint cannot clone.
    """
    samples, sample_rate = recording.samples, recording.sample_rate
    prepared = prepare_reference(samples, sample_rate)
    speaker = model.embed_speaker(torch.from_numpy(resample(samples, sample_rate, model.speaker_sample_rate)))
    text = (transcript or "").strip()
    if not text:
        return VoicePrompt(speaker=speaker)
    longest = model.max_reference_seconds
    if longest is not None and len(prepared) / sample_rate - SILENCE_SECONDS > longest:
        excerpt = find_excerpt(samples, sample_rate, text, max_seconds=longest)
        if excerpt is None:
            _logger.info(
                "a recording of %.0f s is too long to continue, and no beginning of it is sure: its sound has to do",
                len(samples) / sample_rate,
            )
            return VoicePrompt(speaker=speaker)
        text = excerpt.transcript
        prepared = prepare_reference(samples[: round(excerpt.seconds * sample_rate)], sample_rate)
    codes = model.encode(torch.from_numpy(resample(prepared, sample_rate, model.tokenizer_sample_rate)))
    return VoicePrompt(speaker=speaker, reference_codes=codes, reference_text=text)
