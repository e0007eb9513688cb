# Shape letters: B batch, C channel, F mel frame, M mel band, D embedding width.
"""The speaker encoder: an ECAPA-TDNN that turns a log-mel spectrogram into one vector (Desplanques et al. 2020).

Parameter names are those of the public checkpoints. This variant has no batch norm, and its embedding is as wide as the
talker, which uses it without a projection.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from training.model.config import SpeakerEncoderConfig
from training.model.errors import ConfigError

MIN_VARIANCE = 1e-12


class TimeDelayBlock(nn.Module):
    """Same-length convolution over time, reflected at the ends, and ReLU."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(
            in_channels, out_channels, kernel_size, dilation=dilation, padding="same", padding_mode="reflect"
        )

    def forward(self, x_BCF: Tensor) -> Tensor:
        """(B, C, F) to (B, C', F)."""
        return torch.relu(self.conv(x_BCF))


class Res2NetBlock(nn.Module):
    """Channel groups convolved in a chain, each fed with the sum of itself and the group before (Gao et al. 2019)."""

    def __init__(self, channels: int, kernel_size: int, dilation: int, scale: int) -> None:
        super().__init__()
        width = channels // scale
        self.scale = scale
        self.blocks = nn.ModuleList(TimeDelayBlock(width, width, kernel_size, dilation) for _ in range(scale - 1))

    def forward(self, x_BCF: Tensor) -> Tensor:
        """(B, C, F) to the same shape; the first group passes unchanged."""
        first, *groups = x_BCF.chunk(self.scale, dim=1)
        outputs, previous = [first], None
        for block, group in zip(self.blocks, groups, strict=True):
            previous = block(group if previous is None else group + previous)
            outputs.append(previous)
        return torch.cat(outputs, dim=1)


class SqueezeExcitation(nn.Module):
    """Scale each channel by a gate computed from all channels' means (Hu et al. 2018)."""

    def __init__(self, channels: int, bottleneck: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(channels, bottleneck, 1)
        self.conv2 = nn.Conv1d(bottleneck, channels, 1)

    def forward(self, x_BCF: Tensor) -> Tensor:
        """(B, C, F) to the same shape."""
        squeezed = torch.relu(self.conv1(x_BCF.mean(dim=2, keepdim=True)))
        return x_BCF * torch.sigmoid(self.conv2(squeezed))


class SqueezeExcitationRes2NetBlock(nn.Module):
    """The ECAPA block: pointwise, Res2Net, pointwise, squeeze-excitation, residual."""

    def __init__(self, channels: int, kernel_size: int, dilation: int, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        self.tdnn1 = TimeDelayBlock(channels, channels, 1, 1)
        self.res2net_block = Res2NetBlock(channels, kernel_size, dilation, config.enc_res2net_scale)
        self.tdnn2 = TimeDelayBlock(channels, channels, 1, 1)
        self.se_block = SqueezeExcitation(channels, config.enc_se_channels)

    def forward(self, x_BCF: Tensor) -> Tensor:
        """(B, C, F) to the same shape."""
        out: Tensor = x_BCF + self.se_block(self.tdnn2(self.res2net_block(self.tdnn1(x_BCF))))
        return out


class AttentiveStatisticsPooling(nn.Module):
    """Mean and standard deviation over time, weighted by attention (Okabe et al. 2018)."""

    def __init__(self, channels: int, attention_channels: int) -> None:
        super().__init__()
        self.tdnn = TimeDelayBlock(channels * 3, attention_channels, 1, 1)
        self.conv = nn.Conv1d(attention_channels, channels, 1)

    def forward(self, x_BCF: Tensor) -> Tensor:
        """(B, C, F) to (B, 2C, 1): weighted means, then weighted deviations."""
        uniform = x_BCF.new_full((1, 1, x_BCF.shape[-1]), 1.0 / x_BCF.shape[-1])
        mean, deviation = _weighted_statistics(x_BCF, uniform)
        context = torch.cat((x_BCF, mean.expand_as(x_BCF), deviation.expand_as(x_BCF)), dim=1)
        weights = torch.softmax(self.conv(torch.tanh(self.tdnn(context))), dim=2)
        return torch.cat(_weighted_statistics(x_BCF, weights), dim=1)


def _weighted_statistics(x_BCF: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    mean = (weights * x_BCF).sum(dim=2, keepdim=True)
    variance = (weights * (x_BCF - mean).square()).sum(dim=2, keepdim=True)
    return mean, variance.clamp(min=MIN_VARIANCE).sqrt()


class SpeakerEncoder(nn.Module):
    """Log-mel spectrogram to speaker embedding ("x-vector")."""

    def __init__(self, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        channels, kernels, dilations = config.enc_channels, config.enc_kernel_sizes, config.enc_dilations
        if not len(channels) == len(kernels) == len(dilations):
            raise ConfigError(
                "config.json: speaker_encoder_config lists enc_channels, enc_kernel_sizes and enc_dilations differ "
                "in length."
            )
        if any(left != right for left, right in pairwise(channels[:-1])):
            raise ConfigError("config.json: speaker_encoder_config.enc_channels must be equal but for the last.")
        self.config = config
        self.blocks = nn.ModuleList([TimeDelayBlock(config.mel_dim, channels[0], kernels[0], dilations[0])])
        for width, kernel_size, dilation in zip(channels[1:-1], kernels[1:-1], dilations[1:-1], strict=True):
            self.blocks.append(SqueezeExcitationRes2NetBlock(width, kernel_size, dilation, config))
        self.mfa = TimeDelayBlock(sum(channels[1:-1]), channels[-1], kernels[-1], dilations[-1])
        self.asp = AttentiveStatisticsPooling(channels[-1], config.enc_attention_channels)
        self.fc = nn.Conv1d(channels[-1] * 2, config.enc_dim, 1)

    def forward(self, mel_BFM: Tensor) -> Tensor:
        """Embed whole recordings of one length; (B, F, M) to (B, D)."""
        x_BCF = mel_BFM.transpose(1, 2)
        outputs = []
        for block in self.blocks:
            x_BCF = block(x_BCF)
            outputs.append(x_BCF)
        # Multi-layer feature aggregation: every block but the first.
        pooled = self.asp(self.mfa(torch.cat(outputs[1:], dim=1)))
        embedding: Tensor = self.fc(pooled).squeeze(-1)
        return embedding
