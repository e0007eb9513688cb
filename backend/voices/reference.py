"""The reference recording of a voice: read, judged, and stored in one format: 24 kHz, mono, PCM16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from backend.audio.decoding import decode_recording
from backend.audio.limits import REFERENCE_LIMITS
from backend.audio.quality import Concern, ReferenceReport, check_reference, report_on
from backend.audio.recording import Recording
from backend.audio.writing import write_wav
from backend.errors import RecordingTooLong
from backend.provenance.check import Checker
from backend.voices.errors import VoiceError

REFERENCE_SAMPLE_RATE = 24_000
"""Recordings are decoded at this rate, whatever the model's own rates are."""

PAUSE_SECONDS = 0.3
"""Silence between two recordings of one reference: a breath between sentences."""


def read_reference(path: Path) -> Recording:
    """Decode a reference recording, and refuse one that no voice can be cloned from.

    Raises:
        RecordingError: see `decode_recording` and `check_reference`.
    """
    recording = decode_recording(path, sample_rate=REFERENCE_SAMPLE_RATE)
    check_reference(recording)
    return recording


def examine_reference(path: Path, preview: Path | None = None) -> ReferenceReport:
    """Say how good a recording is to clone a voice from; `preview` names a WAV to make of it that is safe to play.

    Raises:
        RecordingError: no voice can be cloned from it.
        AudioWriteFailed: the preview cannot be stored.
    """
    recording = read_reference(path)
    if preview is not None:
        write_wav(preview, recording.samples, recording.sample_rate)
    report = report_on(recording)
    # Any Checker: to look at a recording must not make a home.
    if Checker().judge(path, recording).is_made_by_encore:
        report = replace(report, concerns=(*report.concerns, Concern.MADE_BY_ENCORE))
    return report


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
