"""Discriminators, which learn to tell decoded speech from recorded speech."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

_FFT_SIZES = (2048, 1024, 512)
_SLOPE = 0.2
# Magnitudes are raised to this power and phases kept, so that discriminators also see what is between loud harmonics.
_COMPRESSION = 0.3
_FLOOR = 1e-4
# Kernels over (bins, frames), growing in reach over time as in EnCodec (Défossez et al. 2022).
_DILATIONS = (1, 2, 4)


class Discrimination(NamedTuple):
    """One discriminator's scores of a batch, and the outputs of its hidden layers."""

    score: Tensor
    features: list[Tensor]


class SpectrogramDiscriminator(nn.Module):
    """Scores patches of one complex spectrogram."""

    def __init__(self, fft_size: int, width: int) -> None:
        super().__init__()
        self.fft_size = fft_size
        self.register_buffer("window", torch.hann_window(fft_size), persistent=False)
        layers = [_convolution(2, width, kernel=(9, 3))]
        layers += [_convolution(width, width, kernel=(9, 3), dilation=d, stride=2) for d in _DILATIONS]
        layers += [_convolution(width, width, kernel=(3, 3))]
        self.layers = nn.ModuleList(layers)
        self.score = _convolution(width, 1, kernel=(3, 3))

    def forward(self, waveform: Tensor) -> Discrimination:
        """Score waveforms (rows, samples)."""
        hop = self.fft_size // 4
        spectrum = torch.stft(
            waveform, self.fft_size, hop, window=self.get_buffer("window"), normalized=True, return_complex=True
        )
        parts = torch.view_as_real(spectrum)
        power = parts.square().sum(dim=-1, keepdim=True) + _FLOOR**2
        hidden = (parts * power ** ((_COMPRESSION - 1) / 2)).permute(0, 3, 1, 2)
        features = []
        for layer in self.layers:
            hidden = functional.leaky_relu(layer(hidden), _SLOPE)
            features.append(hidden)
        return Discrimination(self.score(hidden), features)


class Discriminators(nn.ModuleList):
    """Discriminators at several resolutions."""

    def __init__(self, width: int) -> None:
        super().__init__(SpectrogramDiscriminator(size, width) for size in _FFT_SIZES)

    def forward(self, waveform: Tensor) -> list[Discrimination]:
        """Every discriminator's scores of waveforms (rows, samples)."""
        return [discriminator(waveform) for discriminator in self]


def discriminator_loss(decoded: Sequence[Discrimination], recorded: Sequence[Discrimination]) -> Tensor:
    """Hinge loss of the discriminators: recorded above 1, decoded below -1."""
    losses = [
        functional.relu(1 - real.score).mean() + functional.relu(1 + fake.score).mean()
        for fake, real in zip(decoded, recorded, strict=True)
    ]
    return torch.stack(losses).mean()


def adversarial_loss(decoded: Sequence[Discrimination]) -> Tensor:
    """Loss of the decoder: low if its speech is taken for recorded speech."""
    return torch.stack([-fake.score.mean() for fake in decoded]).mean()


def feature_loss(decoded: Sequence[Discrimination], recorded: Sequence[Discrimination]) -> Tensor:
    """Feature matching: distance of the hidden outputs, relative to their magnitude (Kumar et al. 2019)."""
    distances = [
        functional.l1_loss(fake_feature, real_feature.detach()) / real_feature.detach().abs().mean().clamp(min=1e-4)
        for fake, real in zip(decoded, recorded, strict=True)
        for fake_feature, real_feature in zip(fake.features, real.features, strict=True)
    ]
    return torch.stack(distances).mean()


def _convolution(
    in_channels: int, out_channels: int, *, kernel: tuple[int, int], dilation: int = 1, stride: int = 1
) -> nn.Module:
    """A weight-normed convolution over (bins, frames) that strides over bins and dilates over frames."""
    padding = (kernel[0] // 2, dilation * (kernel[1] // 2))
    convolution = nn.Conv2d(
        in_channels, out_channels, kernel, stride=(stride, 1), dilation=(1, dilation), padding=padding
    )
    normed: nn.Module = nn.utils.parametrizations.weight_norm(convolution)
    return normed
