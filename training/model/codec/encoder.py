# Shape letters: B batch row, S sample, T step of a layer, F codec frame, D channels.
"""Waveform to continuous latents: strided convolutions, a transformer, and a last halving of the rate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.model.codec.convolution import CausalConvolution
from training.model.codec.quantizer import EncoderQuantizer
from training.model.codec.stream_state import StreamState
from training.model.codec.transformer import EncoderTransformer
from training.model.config import CodecEncoderConfig

# The convolutions run on pieces of this many frames, all rows together, so that their memory does not grow
# with the recording: at the public sizes one frame takes half a megabyte per layer near the waveform.
_PIECE_FRAMES = 32

# The last convolution halves the frame rate.
_DOWNSAMPLE_STRIDE = 2


class ResidualBlock(nn.Module):
    """Two convolutions with a skip connection; the bottleneck and the kernel sizes are Mimi's."""

    def __init__(self, config: CodecEncoderConfig, width: int, dilation: int) -> None:
        super().__init__()
        narrow = width // config.compress
        self.block = nn.ModuleList(
            [
                nn.ELU(),
                CausalConvolution(width, narrow, config.residual_kernel_size, dilation=dilation),
                nn.ELU(),
                CausalConvolution(narrow, width, 1),
            ]
        )

    def forward(self, hidden_BDT: Tensor, state: StreamState | None = None) -> Tensor:
        """Filter a whole signal, or with `state` its next chunk."""
        branch_BDT = hidden_BDT
        for layer in self.block:
            branch_BDT = layer(branch_BDT, state) if isinstance(layer, CausalConvolution) else layer(branch_BDT)
        return hidden_BDT + branch_BDT


class ConvolutionStack(nn.Module):
    """The strided part: `upsampling_ratios`, read backwards, are its strides."""

    def __init__(self, config: CodecEncoderConfig) -> None:
        super().__init__()
        width = config.num_filters
        layers: list[nn.Module] = [CausalConvolution(config.audio_channels, width, config.kernel_size)]
        for ratio in reversed(config.upsampling_ratios):
            dilations = [config.dilation_growth_rate**index for index in range(config.num_residual_layers)]
            layers += [ResidualBlock(config, width, dilation) for dilation in dilations]
            layers += [nn.ELU(), CausalConvolution(width, 2 * width, 2 * ratio, stride=ratio)]
            width *= 2
        layers += [nn.ELU(), CausalConvolution(width, config.hidden_size, config.last_kernel_size)]
        self.layers = nn.ModuleList(layers)

    def forward(self, signal_BDT: Tensor, lengths_B: Tensor | None = None, state: StreamState | None = None) -> Tensor:
        """Filter a whole signal, or with `state` its next chunk; T must be a multiple of all strides together.

        `lengths_B` is the length of each row's signal in steps. The rest is zeroed before every strided layer, whose
        last window reaches past the end, as for an unbatched signal.
        """
        for layer in self.layers:
            if not isinstance(layer, CausalConvolution):
                signal_BDT = layer(signal_BDT, state) if isinstance(layer, ResidualBlock) else layer(signal_BDT)
                continue
            if lengths_B is not None and layer.stride > 1:
                steps_T = torch.arange(signal_BDT.shape[-1], device=signal_BDT.device)
                signal_BDT = signal_BDT * (steps_T < lengths_B[:, None]).unsqueeze(1)
                lengths_B = -(-lengths_B // layer.stride)
            signal_BDT = layer(signal_BDT, state)
        return signal_BDT


class Encoder(nn.Module):
    """Mimi's encoder (Défossez et al. 2024) with its quantizer."""

    def __init__(self, config: CodecEncoderConfig) -> None:
        super().__init__()
        self.encoder = ConvolutionStack(config)
        self.encoder_transformer = EncoderTransformer(config)
        self.downsample = CausalConvolution(
            config.hidden_size,
            config.hidden_size,
            2 * _DOWNSAMPLE_STRIDE,
            stride=_DOWNSAMPLE_STRIDE,
            bias=False,
            padding="replicate",
        )
        self.quantizer = EncoderQuantizer(config)
        self.stack_stride = math.prod(config.upsampling_ratios)
        self.samples_per_frame = self.stack_stride * _DOWNSAMPLE_STRIDE

    def latents(self, waveform_BS: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """Latents (B, D, F) before quantization, F = ceil(S / samples per frame); differentiable.

        `lengths` is the length of each row's signal in samples, at least 1 (all of them when None). A row's frames up
        to ceil(length / samples per frame) do not depend on the other rows; later ones are padding.
        """
        num_samples = waveform_BS.shape[-1]
        valid = [num_samples] * waveform_BS.shape[0] if lengths is None else list(lengths)
        padded_BS = F.pad(waveform_BS, (0, -num_samples % self.samples_per_frame))
        hidden_BDT = self._convolve(padded_BS.unsqueeze(1), valid)
        hidden_BDT = self.encoder_transformer(hidden_BDT.transpose(1, 2)).transpose(1, 2)
        hidden_BDT = _hold_last(hidden_BDT, [-(-length // self.stack_stride) for length in valid])
        latents_BDF: Tensor = self.downsample(hidden_BDT)
        return latents_BDF

    def _convolve(self, signal_BDS: Tensor, lengths: list[int]) -> Tensor:
        """Run the convolutions piece by piece, or in one piece if gradients need every activation anyway."""
        batch_size, _, num_samples = signal_BDS.shape
        piece_samples = max(1, _PIECE_FRAMES // batch_size) * self.samples_per_frame
        if torch.is_grad_enabled() or num_samples <= piece_samples:
            return self._convolve_piece(signal_BDS, lengths, None)
        state = StreamState(self.encoder, batch_size)
        pieces = [
            self._convolve_piece(piece_BDS, [length - index * piece_samples for length in lengths], state)
            for index, piece_BDS in enumerate(signal_BDS.split(piece_samples, dim=-1))
        ]
        return torch.cat(pieces, dim=-1)

    def _convolve_piece(self, piece_BDS: Tensor, lengths: list[int], state: StreamState | None) -> Tensor:
        is_full = min(lengths) >= piece_BDS.shape[-1]
        lengths_B = None if is_full else torch.tensor(lengths, device=piece_BDS.device).clamp(min=0)
        hidden_BDT: Tensor = self.encoder(piece_BDS, lengths_B, state)
        return hidden_BDT


def _hold_last(hidden_BDT: Tensor, lengths: list[int]) -> Tensor:
    """Pad each row from its length on with its last value, as for an unbatched signal."""
    num_steps = hidden_BDT.shape[-1]
    if min(lengths) >= num_steps:
        return hidden_BDT
    last_B1 = torch.tensor(lengths, device=hidden_BDT.device).unsqueeze(1) - 1
    sources_BT = torch.minimum(torch.arange(num_steps, device=hidden_BDT.device), last_B1)
    return torch.take_along_dim(hidden_BDT, sources_BT.unsqueeze(1), dim=-1)
