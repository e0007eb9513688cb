"""Measures of the sound of a clip as it was recorded, before its loudness was normalised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from backend.audio.quality import MIN_DBFS, NOISE_PERCENTILE, SPEECH_PERCENTILE, clipped_share, frame_levels_dbfs
from backend.dataset.clips.fingerprints import sound_fingerprint

_SILENCE_BELOW_SPEECH_DB = 30.0
_SPECTRUM_SAMPLES = 1024
# A voice's hiss is some 40 dB below its vowels; what a resampler leaves above its cut-off is 70 dB and more below.
_BANDWIDTH_BELOW_PEAK_DB = 60.0


class SoundMeasures(BaseModel):
    """The numbers that the gates about sound check."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    speech_dbfs: float
    noise_dbfs: float
    clipped_share: float
    silence_share: float
    bandwidth_hz: float
    fingerprint: str
    """Hexadecimal; see `sound_fingerprint`."""

    @property
    def speech_over_noise_db(self) -> float:
        """How far the voice stands out of the background."""
        return self.speech_dbfs - self.noise_dbfs


def measure_sound(samples: NDArray[np.float32], sample_rate: int) -> SoundMeasures:
    """Measure mono `samples` (samples,), not empty."""
    levels = frame_levels_dbfs(samples, sample_rate)
    speech_dbfs, noise_dbfs = (float(np.percentile(levels, share)) for share in (SPEECH_PERCENTILE, NOISE_PERCENTILE))
    return SoundMeasures(
        speech_dbfs=speech_dbfs,
        noise_dbfs=noise_dbfs,
        clipped_share=clipped_share(samples),
        silence_share=float(np.mean(levels < max(speech_dbfs - _SILENCE_BELOW_SPEECH_DB, MIN_DBFS + 1))),
        bandwidth_hz=bandwidth_hz(samples, sample_rate),
        fingerprint=sound_fingerprint(samples, sample_rate),
    )


def bandwidth_hz(samples: NDArray[np.float32], sample_rate: int) -> float:
    """Frequency up to which there is sound: reveals a telephone call, whatever the file's rate is.

    The loudest moments of each frequency count, because consonants are short.
    """
    power = _power_spectra(samples, _SPECTRUM_SAMPLES)
    loudest = np.percentile(power, 98, axis=0)
    audible = np.flatnonzero(loudest > loudest.max(initial=0.0) * 10.0 ** (-_BANDWIDTH_BELOW_PEAK_DB / 10.0))
    return float(audible[-1] * sample_rate / _SPECTRUM_SAMPLES) if audible.size else 0.0


def _power_spectra(samples: NDArray[np.float32], num_samples: int) -> NDArray[np.float64]:
    """Power of each frequency in windows of `num_samples`; (samples,) -> (windows, frequencies), never empty."""
    if len(samples) < num_samples:
        samples = np.pad(samples, (0, num_samples - len(samples)))
    windows = np.lib.stride_tricks.sliding_window_view(samples, num_samples)[:: num_samples // 2]
    spectra = np.fft.rfft(windows * np.hanning(num_samples), axis=1)
    power: NDArray[np.float64] = np.square(np.abs(spectra))
    return power
