"""The spectral distance of two waveforms: log-mel spectra at several resolutions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from training.model.network.mel import mel_filterbank


class Resolution(NamedTuple):
    """One spectrogram: its window in samples, with a hop of a quarter, and as many mel bands as it can resolve."""

    fft_size: int
    num_bands: int


RESOLUTIONS = (
    Resolution(128, 12),
    Resolution(256, 24),
    Resolution(512, 48),
    Resolution(1024, 80),
    Resolution(2048, 80),
)
FLOOR = 1e-3
"""Minimum of a band's magnitude before the logarithm, for comparisons; full-scale white noise has about 0.6."""
QUIET_FLOOR = 2e-4
"""In training: below `FLOOR`, decoders filled pauses with a hum that can be heard."""
_CONVERGENCE_WEIGHT = 0.5

SHORT = 256
"""Windows up to this, in samples, see each pulse of a low voice by itself.

Where in time it is no code says. A decoder that is judged by that does best without pulses: below 92 Hz it whispered.
"""


class SpectralLoss(nn.Module):
    """Mean over resolutions of the log-mel distance and half the spectral convergence (Arik et al. 2018)."""

    def __init__(self, sample_rate_hz: int, floor: float = FLOOR) -> None:
        super().__init__()
        self._floor = floor
        for fft_size, num_bands in RESOLUTIONS:
            # Slaney's filters have unit area per hertz; weighted means are wanted here.
            bank = mel_filterbank(sample_rate_hz, fft_size, num_bands) * (sample_rate_hz / fft_size)
            self.register_buffer(f"window_{fft_size}", torch.hann_window(fft_size), persistent=False)
            self.register_buffer(f"bank_{fft_size}", bank, persistent=False)

    def forward(self, predicted: Tensor, target: Tensor, is_deep: Tensor | None = None) -> Tensor:
        """The distance, a scalar, of two float32 batches (rows, samples) of at least half the longest window.

        Short windows do not judge what `is_deep` (rows, samples) says is voiced by a low voice.
        """
        losses = [self._distance(resolution, predicted, target, is_deep) for resolution in RESOLUTIONS]
        return torch.stack(losses).mean()

    def _distance(self, resolution: Resolution, predicted: Tensor, target: Tensor, is_deep: Tensor | None) -> Tensor:
        size = resolution.fft_size
        bank = self.get_buffer(f"bank_{size}")
        magnitude = self._magnitude(size, predicted)
        with torch.no_grad():
            target_magnitude = self._magnitude(size, target)
            target_mel = (bank @ target_magnitude).clamp(min=self._floor).log()
            is_judged = torch.ones_like(magnitude[:, :1])
            if is_deep is not None and size <= SHORT:
                frames = torch.arange(magnitude.shape[-1], device=magnitude.device) * (size // 4)
                is_judged = (~is_deep[:, frames.clamp(max=is_deep.shape[1] - 1)]).to(magnitude.dtype).unsqueeze(1)
        log_mel = (bank @ magnitude).clamp(min=self._floor).log()
        # Over the whole batch, because the convergence of a silent row alone has no meaning.
        difference = ((magnitude - target_magnitude) * is_judged).norm()
        convergence = difference / target_magnitude.norm().clamp(min=FLOOR)
        distance: Tensor = ((log_mel - target_mel).abs() * is_judged).mean() + _CONVERGENCE_WEIGHT * convergence
        return distance

    def _magnitude(self, fft_size: int, waveform: Tensor) -> Tensor:
        """Spectrogram (rows, bins, frames)."""
        spectrum = torch.stft(
            waveform,
            fft_size,
            hop_length=fft_size // 4,
            window=self.get_buffer(f"window_{fft_size}"),
            normalized=True,
            return_complex=True,
        )
        # The root's slope is infinite at zero, and digital silence is there.
        power = torch.view_as_real(spectrum).square().sum(dim=-1)
        magnitude: Tensor = (power + 1e-9).sqrt()
        return magnitude
