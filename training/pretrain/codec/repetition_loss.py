"""How far decoded sound repeats itself from frame to frame, where what was recorded does not.

A decoder has no source of noise. What it makes a hiss of comes from its weights, and where the codes hardly change it
is the same in every frame: a buzz. A spectrogram does not tell, for it has the level of each band, not what is in it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_WINDOW, _HOP = 2560, 640
# Steps of the decoder's lowest rates, up to a frame.
_LAGS = (320, 640, 960, 1280)
_BANDS_HZ = ((1500.0, 3500.0), (3500.0, 8000.0))
_EDGE_HZ = 100.0
_MIN_LEVEL = 3e-3
_MIN_POWER = 1e-6


class RepetitionLoss(nn.Module):
    """Mean excess of autocorrelation at the steps of a decoder, over bands and the recording's windows with sound."""

    def __init__(self, sample_rate_hz: int) -> None:
        super().__init__()
        window = torch.hann_window(_WINDOW)
        own = torch.fft.irfft(torch.fft.rfft(window, 2 * _WINDOW).abs().square())
        lags = torch.tensor(_LAGS)
        bins_hz = torch.arange(_WINDOW + 1) * sample_rate_hz / (2 * _WINDOW)
        bands = [
            torch.sigmoid((bins_hz - low) / _EDGE_HZ) * torch.sigmoid((high - bins_hz) / _EDGE_HZ)
            for low, high in _BANDS_HZ
        ]
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("lags", lags, persistent=False)
        self.register_buffer("own", (own / own[0])[lags], persistent=False)
        self.register_buffer("bands", torch.stack(bands)[:, None, None], persistent=False)

    def forward(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The loss, a scalar from 0 to 1, of two float32 batches (rows, samples) of at least two frames."""
        with torch.no_grad():
            recorded, level = self._autocorrelation(target)
            is_sound = level > _MIN_LEVEL
        found, _ = self._autocorrelation(predicted)
        excess = (found - recorded.clamp(min=0.0)).clamp(min=0.0).mean(dim=-1)
        return (excess * is_sound).sum() / (is_sound.sum() * len(excess)).clamp(min=1)

    def _autocorrelation(self, waveform: Tensor) -> tuple[Tensor, Tensor]:
        """Of each band, normalised, at the lags (bands, rows, windows, lags), and the level of each window."""
        windows = waveform.unfold(-1, _WINDOW, _HOP)
        level = windows.square().mean(dim=-1).sqrt()
        spectrum = torch.fft.rfft(windows * self.get_buffer("window"), 2 * _WINDOW)
        power = torch.view_as_real(spectrum).square().sum(dim=-1) * self.get_buffer("bands")
        correlation = torch.fft.irfft(power)
        lags = self.get_buffer("lags")
        return correlation[..., lags] / (correlation[..., :1] + _MIN_POWER) / self.get_buffer("own"), level
