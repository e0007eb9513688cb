"""The reference recording of a voice, in the one format that is stored: 24 kHz, mono, PCM16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from backend.audio.limits import REFERENCE_LIMITS
from backend.audio.recording import Recording
from backend.audio.writing import write_wav
from backend.errors import RecordingTooLong
from backend.voices.cloning import REFERENCE_SAMPLE_RATE, read_reference
from backend.voices.errors import VoiceError

PAUSE_SECONDS = 0.3
"""Silence between two recordings of one reference: a breath between sentences."""


def write_reference(
    destination: Path, recordings: Sequence[Path], refuse: Callable[[Path, Recording], None] | None = None
) -> None:
    """Decode recordings, check each, and write them as one WAV; the originals are not kept.

    Args:
        destination: of the WAV.
        recordings: files, one after the other.
        refuse: raises for a recording that must not be used.

    Raises:
        RecordingError: one of them cannot be used, or together they are too long.
        VoiceError: no recording was given.
        AudioWriteFailed: the disk is full or not writable.
    """
    if not recordings:
        raise VoiceError("A voice needs a recording to be cloned from. Add one.")
    pause = np.zeros(round(PAUSE_SECONDS * REFERENCE_SAMPLE_RATE), np.float32)
    parts = []
    num_samples = 0
    for path in recordings:
        recording = read_reference(path)
        if refuse is not None:
            refuse(path, recording)
        parts += [recording.samples, pause]
        num_samples += len(recording.samples) + len(pause)
        if num_samples > REFERENCE_LIMITS.max_seconds * REFERENCE_SAMPLE_RATE + len(pause):
            raise RecordingTooLong(
                path.name,
                seconds=num_samples / REFERENCE_SAMPLE_RATE,
                max_seconds=REFERENCE_LIMITS.max_seconds,
            )
    write_wav(destination, np.concatenate(parts[:-1]), REFERENCE_SAMPLE_RATE)
