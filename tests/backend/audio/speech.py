"""Speech made on the spot by the free engines that CI installs; tests skip where they are missing."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile

from tests.backend.audio.sounds import Samples
from tests.programs import require_program

FLITE_HZ = 16_000


def speak(folder: Path, text: str, *, voice: str = "slt") -> Samples:
    """`text` spoken by a flite voice, (samples,) at FLITE_HZ."""
    require_program("flite")
    path = folder / f"{voice}.wav"
    subprocess.run(["flite", "-voice", voice, "-t", text, "-o", str(path)], check=True, timeout=120)
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == FLITE_HZ
    return samples


def speak_with_espeak(folder: Path, text: str) -> tuple[Samples, int]:
    """`text` spoken by espeak-ng, and its sample rate."""
    require_program("espeak-ng")
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
