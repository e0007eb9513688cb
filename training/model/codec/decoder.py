# Shape letters: B batch row, T step at a layer's rate, F codec frame, S sample, D channels.
"""Latents to waveform: a windowed transformer, ConvNeXt upsampling, and a stack of snake convolutions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.model.codec.convolution import CausalConvolution, CausalTransposedConvolution
from training.model.codec.quantizer import DecoderQuantizer
from training.model.codec.stream_state import DecoderState, StreamState
from training.model.codec.transformer import DecoderTransformer
from training.model.config import CodecDecoderConfig

_RESIDUAL_DILATIONS = (1, 3, 9)
_KERNEL_SIZE = 7


class Snake(nn.Module):
    """x + sin^2(a x) / b with learnt log a and log b per channel (Ziyin et al. 2020; BigVGAN)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, signal_BDT: Tensor) -> Tensor:
        """Activate every step alike."""
        frequency_D1 = self.alpha.exp().unsqueeze(-1)
        amplitude_D1 = (self.beta.exp() + 1e-9).reciprocal().unsqueeze(-1)
        # In place on a new tensor: these layers are bound by memory bandwidth, not by arithmetic.
        wave_BDT = (signal_BDT * frequency_D1).sin_().square_()
        # Not addcmul, which rounds once where the reference rounds twice: snakes amplify, and 1e-7 here can be 1e-4
        # in the waveform.
        return wave_BDT.mul_(amplitude_D1).add_(signal_BDT)


class ResidualUnit(nn.Module):
    """A dilated and a pointwise convolution with a skip connection."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.act1 = Snake(width)
        self.conv1 = CausalConvolution(width, width, _KERNEL_SIZE, dilation=dilation)
        self.act2 = Snake(width)
        self.conv2 = CausalConvolution(width, width, 1)

    def forward(self, signal_BDT: Tensor, state: StreamState | None = None) -> Tensor:
        """Filter a whole signal, or with `state` its next chunk."""
        branch_BDT: Tensor = self.conv1(self.act1(signal_BDT), state)
        branch_BDT = self.conv2(self.act2(branch_BDT), state)
        return branch_BDT + signal_BDT


class DecoderBlock(nn.Module):
    """Upsample by `rate` while halving the channels, then three residual units of growing reach."""

    def __init__(self, width: int, rate: int) -> None:
        super().__init__()
        self.block = nn.ModuleList(
            [
                Snake(width),
                CausalTransposedConvolution(width, width // 2, stride=rate, overlap=True),
                *(ResidualUnit(width // 2, dilation) for dilation in _RESIDUAL_DILATIONS),
            ]
        )

    def forward(self, signal_BDT: Tensor, state: StreamState | None = None) -> Tensor:
        """Filter a whole signal, or with `state` its next chunk: T steps become T * rate."""
        for layer in self.block:
            signal_BDT = layer(signal_BDT) if isinstance(layer, Snake) else layer(signal_BDT, state)
        return signal_BDT


class ConvNextBlock(nn.Module):
    """Depthwise convolution and a per-step MLP with a skip connection (Liu et al. 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dwconv = CausalConvolution(width, width, _KERNEL_SIZE, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.pwconv2 = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, signal_BDT: Tensor, state: StreamState | None = None) -> Tensor:
        """Filter a whole signal, or with `state` its next chunk."""
        branch_BTD: Tensor = self.norm(self.dwconv(signal_BDT, state).transpose(1, 2))
        branch_BTD = self.gamma * self.pwconv2(F.gelu(self.pwconv1(branch_BTD)))
        return signal_BDT + branch_BTD.transpose(1, 2)


class Decoder(nn.Module):
    """The quantizer's decoding half and the network that turns its latents into a waveform."""

    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        self.pre_transformer = DecoderTransformer(config)
        self.quantizer = DecoderQuantizer(config)
        self.pre_conv = CausalConvolution(config.codebook_dim, config.latent_dim, 3)
        self.upsample = nn.ModuleList(
            nn.ModuleList(
                [
                    CausalTransposedConvolution(config.latent_dim, config.latent_dim, stride=rate, overlap=False),
                    ConvNextBlock(config.latent_dim),
                ]
            )
            for rate in config.upsampling_ratios
        )
        widths = [config.decoder_dim // 2**index for index in range(len(config.upsample_rates) + 1)]
        self.decoder = nn.ModuleList(
            [
                CausalConvolution(config.latent_dim, config.decoder_dim, _KERNEL_SIZE),
                *(DecoderBlock(width, rate) for width, rate in zip(widths, config.upsample_rates, strict=False)),
                Snake(widths[-1]),
                CausalConvolution(widths[-1], 1, _KERNEL_SIZE),
            ]
        )
        self.samples_per_frame = math.prod(config.upsampling_ratios) * math.prod(config.upsample_rates)

    def forward(self, latents_BDF: Tensor, state: DecoderState | None = None) -> Tensor:
        """Waveform (B, S) of quantized latents, or with `state` of each row's next frames.

        Not clamped to [-1, 1], because clamping would stop the gradients of loud samples.
        """
        hidden_BDT: Tensor = self.pre_conv(latents_BDF.to(self.pre_conv.conv.weight.dtype), state)
        hidden_BDT = self.pre_transformer(hidden_BDT.transpose(1, 2), state).transpose(1, 2)
        for stage in self.upsample:
            assert isinstance(stage, nn.ModuleList)
            for layer in stage:
                hidden_BDT = layer(hidden_BDT, state)
        for layer in self.decoder:
            hidden_BDT = layer(hidden_BDT) if isinstance(layer, Snake) else layer(hidden_BDT, state)
        return hidden_BDT.squeeze(1)
