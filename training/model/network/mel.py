# Shape letters: B batch, S sample, F mel frame, M mel band, K frequency bin.
"""The speaker encoder's front end: log-mel spectrogram, computed as the published speaker encoders were trained."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

FFT_SIZE = 1024
HOP_SAMPLES = 256
MIN_MAGNITUDE = 1e-5
"""Floor before the logarithm."""


def log_mel(waveform_BS: Tensor, sample_rate: int = 24000, num_bands: int = 128) -> Tensor:
    """Log-mel spectrogram of mono audio in [-1, 1].

    Magnitude (not power) spectra of a 1024-point Hann STFT with hop 256, reflected at both ends by
    (1024 - 256) / 2 samples and not centred, then a Slaney-normalised filterbank from 0 Hz to half the
    sample rate and the logarithm of at least 1e-5.

    Args:
        waveform_BS: samples; more than 384 of them, for the reflection.
        sample_rate: in Hz.
        num_bands: mel bands.

    Returns:
        (B, F, M) with F = S // 256.
    """
    padding = (FFT_SIZE - HOP_SAMPLES) // 2
    padded = F.pad(waveform_BS.float().unsqueeze(1), (padding, padding), mode="reflect").squeeze(1)
    window = torch.hann_window(FFT_SIZE, device=waveform_BS.device)
    spectrum_BKF = torch.stft(
        padded, FFT_SIZE, hop_length=HOP_SAMPLES, window=window, center=False, return_complex=True
    )
    # The reference adds 1e-9 inside the root, which sets a silent bin's magnitude.
    magnitude_BKF = torch.sqrt(spectrum_BKF.abs().square() + 1e-9)
    bank_MK = mel_filterbank(sample_rate, FFT_SIZE, num_bands).to(waveform_BS.device)
    return torch.log((bank_MK @ magnitude_BKF).clamp(min=MIN_MAGNITUDE)).transpose(1, 2)


@lru_cache(maxsize=8)
def mel_filterbank(sample_rate: int, fft_size: int, num_bands: int) -> Tensor:
    """Triangular filters (M, K) on Slaney's mel scale, each of unit area per hertz, from 0 Hz to Nyquist."""
    bins_hz = torch.linspace(0, sample_rate / 2, fft_size // 2 + 1, dtype=torch.float64)
    top = _hz_to_mel(sample_rate / 2)
    edges_hz = torch.tensor([_mel_to_hz(top * i / (num_bands + 1)) for i in range(num_bands + 2)], dtype=torch.float64)
    widths_hz = edges_hz.diff()
    distance = edges_hz.unsqueeze(1) - bins_hz.unsqueeze(0)
    rising = -distance[:-2] / widths_hz[:-1].unsqueeze(1)
    falling = distance[2:] / widths_hz[1:].unsqueeze(1)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    area = 2.0 / (edges_hz[2:] - edges_hz[:-2])
    return (triangles * area.unsqueeze(1)).float()


# Slaney's scale (Auditory Toolbox, 1998): linear below 1 kHz, logarithmic above.
_HZ_PER_MEL = 200.0 / 3
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _HZ_PER_MEL
_LOG_STEP = math.log(6.4) / 27


def _hz_to_mel(hz: float) -> float:
    return hz / _HZ_PER_MEL if hz < _BREAK_HZ else _BREAK_MEL + math.log(hz / _BREAK_HZ) / _LOG_STEP


def _mel_to_hz(mel: float) -> float:
    return mel * _HZ_PER_MEL if mel < _BREAK_MEL else _BREAK_HZ * math.exp(_LOG_STEP * (mel - _BREAK_MEL))
