# Shape letters: N row, I input width, O output width.
"""Linear layers for decoding: the same weights, repacked once for the kernel that reads them fastest.

Decoding one frame multiplies single rows with gigabytes of weights, so it is bound by memory. On CPU the
library call behind `F.linear` reads them in a layout made for large matrices; packed layouts read 1.2 to 1.7
times as fast, and int8 six times. On other devices the weights are used as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Precision = Literal["fp32", "bf16", "int8"]
RowLinear = Callable[[Tensor], Tensor]
"""Maps (..., I) to (..., O)."""

COMPUTE_DTYPE: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    # Int8 quantizes inside each linear layer; what flows between the layers stays exact.
    "int8": torch.float32,
}


def pack(layers: Sequence[nn.Linear], precision: Precision, num_rows: int = 1) -> RowLinear:
    """Fuse layers that read the same input into one call.

    Args:
        layers: linear layers of one input width; their outputs are concatenated in order.
        precision: kernel and weight type.
        num_rows: rows per call to tune the packed layout for; any number of rows is computed correctly.

    Returns:
        A function of (..., I); its result has the compute dtype of `precision`.
    """
    weight_OI = torch.cat([layer.weight.detach() for layer in layers])
    has_bias = layers[0].bias is not None
    bias_O = torch.cat([layer.bias.detach() for layer in layers]) if has_bias else None
    if precision == "int8":
        return _Int8Linear(weight_OI, bias_O)
    dtype = COMPUTE_DTYPE[precision]
    weight_OI = weight_OI.to(dtype)
    bias_O = bias_O.to(dtype) if bias_O is not None else None
    if _can_pack(weight_OI):
        return _PackedLinear(weight_OI, bias_O, num_rows)
    return lambda x: F.linear(x, weight_OI, bias_O)


def _can_pack(weight_OI: Tensor) -> bool:
    if weight_OI.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    # bfloat16 without hardware support falls back to a slow reference kernel.
    return weight_OI.dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()


class _PackedLinear:
    """Weights reordered into oneDNN's blocked layout, as torch.compile does for frozen models."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, num_rows: int) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), num_rows)
        self.bias = bias_O

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return out


class _Int8Linear:
    """Int8 weights per output channel, int8 activations per row.

    Every row is scaled to [-1, 1] on its own before it is quantized on a fixed grid, and integer sums are
    exact: a row's result does not depend on which other rows share the call. Quantizing the whole input at
    once, as dynamic quantization does, would let one take change another in the same batch.
    """

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        weight_OI = weight_OI.float()
        scale_O = weight_OI.abs().amax(dim=1).clamp(min=1e-12) / 127
        steps_OI = torch.round(weight_OI / scale_O.unsqueeze(1)).to(torch.int8)
        zeros_O = torch.zeros_like(scale_O, dtype=torch.long)
        with warnings.catch_warnings():
            # The packed kernel takes its weights as a quantized tensor, whose type is deprecated; it is only
            # a carrier here, gone after this line.
            warnings.filterwarnings("ignore", message="torch.quantize_per_tensor", category=UserWarning)
            quantized = torch._make_per_channel_quantized_tensor(steps_OI, scale_O.double(), zeros_O, 0)
        self.weight = torch.ops.quantized.linear_prepack(quantized, None)
        self.bias = bias_O.float() if bias_O is not None else None
        # Without VNNI the kernel adds pairs of products in 16 bits; seven-bit activations cannot overflow them.
        self.steps = 127 if torch.cpu._is_vnni_supported() else 63

    def __call__(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12)
        out: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / scale, 1.0 / self.steps, self.steps + 1, self.weight
        )
        out = out * scale
        return out if self.bias is None else out + self.bias
