"""How alike sound is to itself some time later, in bands of frequency."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_EDGE_HZ = 60.0
_MIN_POWER = 1e-6


class BandAutocorrelation(nn.Module):
    """Normalised autocorrelation of windows: 1 is the same again, 0 something else."""

    def __init__(
        self, sample_rate_hz: int, window: int, hop: int, bands_hz: Sequence[tuple[float, float]], lags: Sequence[int]
    ) -> None:
        """Compare windows of `window` samples, `hop` apart, with themselves `lags` samples later, in each band."""
        super().__init__()
        self._window, self._hop = window, hop
        hann = torch.hann_window(window)
        own = torch.fft.irfft(torch.fft.rfft(hann, 2 * window).abs().square())
        bins_hz = torch.arange(window + 1) * sample_rate_hz / (2 * window)
        bands = [
            torch.sigmoid((high - bins_hz) / _EDGE_HZ) * (torch.sigmoid((bins_hz - low) / _EDGE_HZ) if low else 1)
            for low, high in bands_hz
        ]
        self.register_buffer("hann", hann, persistent=False)
        self.register_buffer("lags", torch.tensor(lags), persistent=False)
        # Divided by the window's own (Boersma 1993), or long lags would always look weaker.
        self.register_buffer("own", (own / own[0])[torch.tensor(lags)], persistent=False)
        self.register_buffer("bands", torch.stack(bands)[:, None, None], persistent=False)

    def forward(self, waveform: Tensor) -> tuple[Tensor, Tensor]:
        """At all lags (bands, rows, windows, lags), and the level of each window (rows, windows).

        Args:
            waveform: a float32 batch (rows, samples), at least a window long.
        """
        windows = waveform.unfold(-1, self._window, self._hop)
        level = windows.square().mean(dim=-1).sqrt()
        centred = windows - windows.mean(dim=-1, keepdim=True)
        spectrum = torch.fft.rfft(centred * self.get_buffer("hann"), 2 * self._window)
        power = torch.view_as_real(spectrum).square().sum(dim=-1) * self.get_buffer("bands")
        correlation = torch.fft.irfft(power)
        at_lags = correlation.index_select(-1, self.get_buffer("lags"))
        return at_lags / (correlation[..., :1] + _MIN_POWER) / self.get_buffer("own"), level
