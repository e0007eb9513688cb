# Shape letters: B batch row, D channels, T time step at the layer's own rate, K kernel tap, X channels times taps.
"""Causal convolutions, over a whole signal at once or chunk by chunk with a carried state."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.model.codec.stream_state import CarryingLayer, StreamState

# Up to this many steps of a stream, a convolution is computed as one matrix product: with so few steps oneDNN spends
# more time on reordering the weights than on using them. Measured at the public sizes, four frames per chunk, one core:
# 6.5 instead of 17.6 ms for the widest convolution, 15 instead of 54 ms for the widest transposed one.
_MAX_PRODUCT_STEPS = 64


class CausalConvolution(CarryingLayer):
    """Convolution padded on the left only, so that output t depends on inputs up to t.

    `padding` is what precedes a whole signal: zeros ("constant") or its first value ("replicate"). A stream always
    starts from zeros.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        padding: str = "constant",
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(
            in_channels, out_channels, kernel_size, stride=stride, dilation=dilation, groups=groups, bias=bias
        )
        self.stride = stride
        self.span = (kernel_size - 1) * dilation + 1
        self.context_steps = self.span - stride
        self.padding = padding

    def initial_carry(self, batch_size: int) -> Tensor:
        """Zeros (B, D, context)."""
        return self.conv.weight.new_zeros(batch_size, self.conv.in_channels, self.context_steps)

    def forward(self, signal_BDT: Tensor, state: StreamState | None = None) -> Tensor:
        """Filter a whole signal, or with `state` its next chunk; T must be a multiple of the stride."""
        assert signal_BDT.shape[-1] % self.stride == 0, "strided layers need whole strides"
        if state is None:
            # The library's own convolution, for the rounding of the recorded reference outputs.
            if self.context_steps > 0:
                signal_BDT = F.pad(signal_BDT, (self.context_steps, 0), mode=self.padding)
            filtered_BDT: Tensor = self.conv(signal_BDT)
            return filtered_BDT
        if self.context_steps == 0:
            return self._convolve_chunk(signal_BDT)
        carry_BDT = state.carry(self)
        extended_BDT = torch.cat((carry_BDT, signal_BDT), dim=-1)
        carry_BDT.copy_(extended_BDT[..., -self.context_steps :])
        return self._convolve_chunk(extended_BDT)

    def _convolve_chunk(self, extended_BDT: Tensor) -> Tensor:
        num_steps = (extended_BDT.shape[-1] - self.span) // self.stride + 1
        if self.conv.groups > 1 or num_steps > _MAX_PRODUCT_STEPS:
            filtered_BDT: Tensor = self.conv(extended_BDT)
            return filtered_BDT
        dilation = self.conv.dilation[0]
        windows_BDTK = extended_BDT.unfold(-1, self.span, self.stride)[..., ::dilation]
        windows_BTX = windows_BDTK.transpose(1, 2).flatten(2)
        return F.linear(windows_BTX, self.conv.weight.flatten(1), self.conv.bias).transpose(1, 2)


class CausalTransposedConvolution(CarryingLayer):
    """Upsampling by `stride`: input t makes outputs from t*stride on, and every input makes `stride` of them.

    The kernel covers one stride (outputs of two inputs never meet) or two (the second half of each input's
    outputs is added to the first half of the next one's; at the end of a signal it is cut off).
    """

    def __init__(self, in_channels: int, out_channels: int, *, stride: int, overlap: bool) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(in_channels, out_channels, stride * (2 if overlap else 1), stride=stride)
        self.stride = stride
        self.overlap = overlap

    def initial_carry(self, batch_size: int) -> Tensor:
        """Zeros (B, D, stride), what the last input adds to the next one's outputs; no channels without overlap."""
        return self.conv.weight.new_zeros(batch_size, self.conv.out_channels if self.overlap else 0, self.stride)

    def forward(self, signal_BDT: Tensor, state: StreamState | None = None) -> Tensor:
        """Upsample a whole signal, or with `state` its next chunk: T steps become T * stride."""
        if state is None:
            whole_BDT: Tensor = self.conv(signal_BDT)
            return whole_BDT[..., : -self.stride] if self.overlap else whole_BDT
        spread_BDT = self._spread(signal_BDT)
        if self.overlap:
            carry_BDT = state.carry(self)
            spread_BDT[..., : self.stride] += carry_BDT
            carry_BDT.copy_(spread_BDT[..., -self.stride :])
            spread_BDT = spread_BDT[..., : -self.stride]
        assert self.conv.bias is not None
        return spread_BDT + self.conv.bias.unsqueeze(-1)

    def _spread(self, signal_BDT: Tensor) -> Tensor:
        """The summed outputs of all inputs, without bias: T * stride steps, one stride more with overlap."""
        weight = self.conv.weight
        if signal_BDT.shape[-1] > _MAX_PRODUCT_STEPS:
            return F.conv_transpose1d(signal_BDT, weight, stride=self.stride)
        made_BTX = signal_BDT.transpose(1, 2) @ weight.flatten(1)
        made_BDTK: Tensor = made_BTX.unflatten(-1, weight.shape[1:]).transpose(1, 2)
        if not self.overlap:
            return made_BDTK.flatten(2)
        early_BDTK, late_BDTK = made_BDTK[..., : self.stride], made_BDTK[..., self.stride :]
        return (F.pad(early_BDTK, (0, 0, 0, 1)) + F.pad(late_BDTK, (0, 0, 1, 0))).flatten(2)
