"""A zero-shot voice: what a model takes from one reference recording."""

from __future__ import annotations

import torch

from backend.audio.recording import Recording
from backend.audio.resample import resample
from training.model.generation.take_request import VoicePrompt
from training.model.prompt.reference import prepare_reference
from training.model.voice_model import VoiceModel


def clone_voice(model: VoiceModel, recording: Recording, transcript: str | None = None) -> VoicePrompt:
    """Make a voice of a checked recording: in context with a transcript, from the speaker embedding without.

    Raises:
        PromptError: the checkpoint cannot clone.
    """
    prepared = prepare_reference(recording.samples, recording.sample_rate)
    speaker = model.embed_speaker(
        torch.from_numpy(resample(recording.samples, recording.sample_rate, model.speaker_sample_rate))
    )
    if transcript is None or not transcript.strip():
        return VoicePrompt(speaker=speaker)
    codes = model.encode(torch.from_numpy(resample(prepared, recording.sample_rate, model.tokenizer_sample_rate)))
    return VoicePrompt(speaker=speaker, reference_codes=codes, reference_text=transcript.strip())
