# Shape letters: B batch row, D channels, T time step at the layer's own rate, K kernel tap.
"""Convolutions that see only the past, over a whole signal at once or chunk by chunk with a carried state."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.model.speech_tokenizer.streaming import CarryingLayer, StreamState

# Up to this many output steps a convolution is a matrix product over unfolded windows: with so few steps
# oneDNN spends more on reordering the weights than on using them (17.6 ms against 6.5 ms for the widest
# layer of the public decoder at four frames per chunk).
_LONGEST_UNFOLDED_STEPS = 64


class CausalConvolution(CarryingLayer):
    """Convolution padded on the left only, so that output t depends on inputs up to t.

    `padding` is what stands left of a whole signal: zeros ("constant") or its first value ("replicate").
    A stream always starts from zeros.
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
        if self.context_steps == 0:
            return self._convolve(signal_BDT)
        if state is None:
            return self._convolve(F.pad(signal_BDT, (self.context_steps, 0), mode=self.padding))
        carry_BDT = state.carry(self)
        extended_BDT = torch.cat((carry_BDT, signal_BDT), dim=-1)
        carry_BDT.copy_(extended_BDT[..., -self.context_steps :])
        return self._convolve(extended_BDT)

    def _convolve(self, extended_BDT: Tensor) -> Tensor:
        num_steps = (extended_BDT.shape[-1] - self.span) // self.stride + 1
        if self.conv.groups > 1 or not 0 < num_steps <= _LONGEST_UNFOLDED_STEPS:
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
        # One matrix product with the weight as it is stored. oneDNN's transposed convolution reorders the
        # weight first, which for short chunks takes ten times as long as the product.
        made_BTX = signal_BDT.transpose(1, 2) @ self.conv.weight.flatten(1)
        made_BTDK = made_BTX.unflatten(-1, (self.conv.out_channels, -1))
        own_BTDK = made_BTDK[..., : self.stride]
        if self.overlap:
            late_BTDK = made_BTDK[..., self.stride :]
            if state is None:
                before_BTDK = F.pad(late_BTDK[:, :-1], (0, 0, 0, 0, 1, 0))
            else:
                carry_BDK = state.carry(self)
                before_BTDK = torch.cat((carry_BDK.unsqueeze(1), late_BTDK[:, :-1]), dim=1)
                carry_BDK.copy_(late_BTDK[:, -1])
            own_BTDK = own_BTDK + before_BTDK
        assert self.conv.bias is not None
        return (own_BTDK.transpose(1, 2) + self.conv.bias[:, None, None]).flatten(2)
