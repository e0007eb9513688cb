"""Recording conditions that synthesized speech lacks: telephones, rooms, microphones and noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ

# Limits of a telephone's band, and its attenuation outside, in decibels per octave.
_MIN_HZ, _MAX_HZ = (150.0, 350.0), (3000.0, 4200.0)
_SLOPE_DB = 36.0
# Tilt of a microphone's response, in decibels per octave.
_TILT_DB = (-3.0, 3.0)
# Reverberation time (to -60 dB), and the energy of all reflections relative to the direct sound.
_RINGING_SECONDS = (0.15, 0.5)
_ROOM_DB = (-24.0, -12.0)
_NOISE_DB = (-60.0, -38.0)
_TELEPHONE_SHARE, _ROOM_SHARE, _NOISE_SHARE = 0.4, 0.4, 0.5


def through_channel(speech: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Speech (samples,) as recorded over a random channel: equally long and loud, and not delayed."""
    level = float(np.sqrt(np.square(speech).mean()))
    if level == 0:
        return speech
    size = 2 * len(speech)
    hz = np.fft.rfftfreq(size, 1 / SAMPLE_RATE_HZ)
    octaves = np.log2(np.maximum(hz, 20.0) / 1000)
    gain_db = random.uniform(*_TILT_DB) * octaves
    if random.random() < _TELEPHONE_SHARE:
        low, high = (np.log2(random.uniform(*ends) / 1000) for ends in (_MIN_HZ, _MAX_HZ))
        gain_db = gain_db - _SLOPE_DB * (np.maximum(low - octaves, 0) + np.maximum(octaves - high, 0))
    spectrum = np.fft.rfft(speech, size) * 10 ** (gain_db / 20)
    if random.random() < _ROOM_SHARE:
        spectrum = spectrum * np.fft.rfft(_room(random), size)
    # Filters without phase, and rooms that begin with the direct sound, so that speech is not delayed.
    out = np.fft.irfft(spectrum, size)[: len(speech)]
    if random.random() < _NOISE_SHARE:
        out = out + random.normal(size=len(out)) * level * 10 ** (random.uniform(*_NOISE_DB) / 20)
    scale = level / max(float(np.sqrt(np.square(out).mean())), 1e-9)
    return np.clip(out * scale, -1, 1).astype(np.float32)


def sometimes_through_channel(
    speech: NDArray[np.float32], random: np.random.Generator, share: float = 0.2
) -> NDArray[np.float32]:
    """Speech over a random channel in a share of all calls, unchanged in the others."""
    return through_channel(speech, random) if random.random() < share else speech


def _room(random: np.random.Generator) -> NDArray[np.float64]:
    """Impulse response of a room: the direct sound, then decaying noise."""
    seconds = random.uniform(*_RINGING_SECONDS)
    num_samples = int(seconds * SAMPLE_RATE_HZ)
    decay = 10 ** (-3 * np.arange(num_samples) / num_samples)
    ringing = random.normal(size=num_samples) * decay
    ringing *= 10 ** (random.uniform(*_ROOM_DB) / 20) / np.sqrt(np.square(ringing).sum())
    ringing[0] = 1.0
    return ringing
