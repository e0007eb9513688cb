"""Speech made on the spot by the free engines that CI installs; tests that need it skip where they are missing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.backend.audio.sounds import Samples

FLITE_HZ = 16_000

needs_flite = pytest.mark.skipif(shutil.which("flite") is None, reason="flite is not installed")
needs_espeak = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")


def speak(folder: Path, text: str, *, voice: str = "slt") -> Samples:
    """`text` spoken by a flite voice, (samples,) at FLITE_HZ."""
    path = folder / f"{voice}.wav"
    subprocess.run(["flite", "-voice", voice, "-t", text, "-o", str(path)], check=True, timeout=120)
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == FLITE_HZ
    return samples


def speak_with_espeak(folder: Path, text: str) -> tuple[Samples, int]:
    """`text` spoken by espeak-ng, and its sample rate."""
    path = folder / "espeak.wav"
    subprocess.run(["espeak-ng", "-w", str(path), text], check=True, timeout=120)
    samples, rate = soundfile.read(path, dtype="float32")
    return samples, rate


def with_pauses(utterances: Sequence[Samples], pause_seconds: float) -> tuple[Samples, list[tuple[float, float]]]:
    """Utterances with silence before, between and after; also where each begins and ends, in seconds."""
    silence = np.zeros(round(pause_seconds * FLITE_HZ), np.float32)
    parts, places, position = [silence], [], len(silence)
    for utterance in utterances:
        places.append((position / FLITE_HZ, (position + len(utterance)) / FLITE_HZ))
        parts += [utterance, silence]
        position += len(utterance) + len(silence)
    return np.concatenate(parts), places
