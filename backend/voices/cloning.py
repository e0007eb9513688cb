"""A zero-shot voice: what a model takes from one reference recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from backend.audio.decoding import decode_recording
from backend.audio.quality import check_reference
from backend.audio.recording import Recording
from training.model.decoding.take_request import VoicePrompt
from training.model.prompt.reference import prepare_reference
from training.model.voice_model import VoiceModel

REFERENCE_SAMPLE_RATE = 24_000
"""Recordings are decoded at this rate, whatever the model's own rates are."""


def read_reference(path: Path) -> Recording:
    """Decode a reference recording and refuse what no voice can be cloned from.

    Raises:
        RecordingError: see `decode_recording` and `check_reference`.
    """
    recording = decode_recording(path, sample_rate=REFERENCE_SAMPLE_RATE)
    check_reference(recording)
    return recording


def clone_voice(model: VoiceModel, recording: Recording, transcript: str | None = None) -> VoicePrompt:
    """Make a voice of a checked recording: in context with a transcript, from the speaker embedding without.

    Raises:
        PromptError: the checkpoint cannot clone.
    """
    prepared = prepare_reference(recording.samples, recording.sample_rate)
    speaker = model.embed_speaker(_at_rate(recording.samples, recording.sample_rate, model.speaker_sample_rate))
    if transcript is None or not transcript.strip():
        return VoicePrompt(speaker=speaker)
    codes = model.encode(_at_rate(prepared, recording.sample_rate, model.tokenizer_sample_rate))
    return VoicePrompt(speaker=speaker, reference_codes=codes, reference_text=transcript.strip())


def _at_rate(samples: NDArray[np.float32], sample_rate: int, wanted: int) -> torch.Tensor:
    resampled = samples if sample_rate == wanted else soxr.resample(samples, sample_rate, wanted)
    return torch.from_numpy(np.ascontiguousarray(resampled, dtype=np.float32))
