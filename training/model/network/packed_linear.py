# Shape letters: N row, I input width, O output width.
"""Linear layers for decoding: the same weights, repacked once for the kernel that reads them fastest.

Decoding one frame multiplies single rows with all the weights, so it is bound by memory bandwidth, or by the shared
cache for small networks. Bytes per weight matter most, and for small weights the overhead of a call. Published weights
are bfloat16, which half precision represents exactly: on x86, float32 products read them in 16 bits without loss. On
other devices the weights are used as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from training.model.precision import Precision

RowLinear = Callable[[Tensor], Tensor]
"""Maps (..., I) to (..., O)."""

COMPUTE_DTYPE: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    # Int8 quantizes inside each linear layer; what flows between the layers is float32.
    "int8": torch.float32,
}

SMALL_WEIGHT = 1_000_000
"""Weights with fewer elements count as small; the public checkpoints have none. At 1152 x 192 a plain call takes 23 us
and a packed one 28; at 6144 x 1024 it is 1,200 and 950."""

_HALF_ROUNDING = 2.0**-25
"""Half the spacing of the smallest half-precision numbers."""


def pack(layers: Sequence[nn.Linear], precision: Precision, num_rows: int = 1) -> RowLinear:
    """Fuse layers that read the same input into one call.

    Args:
        layers: linear layers of one input width; their outputs are concatenated in order.
        precision: kernel and weight type.
        num_rows: rows per call to tune the packed layout for; any number of rows is computed correctly. With 1 there is
            no other row whose number could change a result, and nothing is spent on that.

    Returns:
        A function of (..., I); its result is a new tensor of the compute dtype of `precision`.
    """
    weight_OI = torch.cat([layer.weight.detach() for layer in layers])
    has_bias = layers[0].bias is not None
    bias_O = torch.cat([layer.bias.detach() for layer in layers]) if has_bias else None
    if precision == "int8":
        is_small = weight_OI.numel() < SMALL_WEIGHT and weight_OI.shape[1] % _SmallInt8Linear.WIDTH_STEP == 0
        return _SmallInt8Linear(weight_OI, bias_O) if is_small else _Int8Linear(weight_OI, bias_O)
    dtype = COMPUTE_DTYPE[precision]
    weight_OI = weight_OI.to(dtype)
    bias_O = bias_O.to(dtype) if bias_O is not None else None
    if dtype == torch.float32 and _fits_half(weight_OI):
        is_serial = weight_OI.numel() < SMALL_WEIGHT or torch.get_num_threads() == 1
        return (_SerialHalfLinear if is_serial else _HalfLinear)(weight_OI, bias_O, num_rows)
    if _is_better_packed(weight_OI):
        return _PackedLinear(weight_OI, bias_O, num_rows)
    if weight_OI.device.type == "cpu" and dtype == torch.float32:
        return _TransposedLinear(weight_OI, bias_O)
    return lambda x: F.linear(x, weight_OI, bias_O)


def num_packed_bytes(linear: RowLinear, num_weights: int, precision: Precision) -> int:
    """Of weights that were packed; some kernels hold them where PyTorch cannot measure them."""
    if isinstance(linear, _Int8Linear | _SmallInt8Linear):
        return num_weights
    in_half = isinstance(linear, _HalfLinear)
    return num_weights * (2 if in_half else COMPUTE_DTYPE[precision].itemsize)


def is_batch_invariant(layers: Iterable[RowLinear]) -> bool:
    """Whether all layers are batch-invariant: a row's result is bit-equal for any number of rows in the call.

    True of the kernels for weights of 16 and 8 bits, which always sum in the same order, or are made to. General
    float32 libraries choose the order by the number of rows.
    """
    return all(isinstance(layer, _HalfLinear | _Int8Linear | _SmallInt8Linear) for layer in layers)


def _fits_half(weight_OI: Tensor) -> bool:
    """Whether half precision represents these weights exactly, and a kernel multiplies float32 with it here."""
    has_kernel = torch.backends.quantized.engine in ("x86", "fbgemm") and torch.cpu._is_avx2_supported()
    if weight_OI.device.type != "cpu" or not has_kernel:
        return False
    # Subnormal halves are rounded by up to 3e-8, which is less than the rounding of sums of products.
    return bool(((weight_OI.half().float() - weight_OI).abs() <= _HALF_ROUNDING).all())


def _is_better_packed(weight_OI: Tensor) -> bool:
    if weight_OI.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight_OI.dtype == torch.float32:
        return weight_OI.numel() >= SMALL_WEIGHT
    # bfloat16 without hardware support falls back to a slow reference kernel.
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


_TILE_ROWS = 6
_MIN_ROWS = 3
"""The kernel for half precision takes up to six rows at a time, and those left over together."""


@cache
def _sums_few_rows_otherwise() -> bool:
    """Whether the kernel for half precision sums one or two rows in another order than more of them.

    It does on processors with AVX2 alone; with AVX-512 the order is always the same. Asked of the kernel itself, which
    chooses its instructions by rules of its own.
    """
    generator = torch.Generator().manual_seed(0)
    weight_OI, x_NI = (torch.randn(rows, 64, generator=generator) for rows in (64, _MIN_ROWS))
    kernel = torch.ops.quantized.linear_dynamic_fp16
    weight = torch.ops.quantized.linear_prepack_fp16(weight_OI, None)
    return not torch.equal(kernel(x_NI[:1], weight), kernel(x_NI, weight)[:1])


class _HalfLinear:
    """Large weights in half precision; inputs, products and sums are float32. Twice as fast as float32 weights.

    Where the kernel sums few rows otherwise, rows are added so that it never has to, unless every call is for one take.
    That takes up to twice the time of one row, which is less than with float32 weights.
    """

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, num_rows: int) -> None:
        self._pack(weight_OI, bias_O)
        self._fills_up = num_rows > 1 and _sums_few_rows_otherwise()

    def __call__(self, x: Tensor) -> Tensor:
        if not self._fills_up:
            return self._multiply(x)
        x_NI = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        num_rows = x_NI.shape[0]
        num_left = num_rows % _TILE_ROWS
        if num_left == 0 or num_left >= _MIN_ROWS:
            return self._multiply(x)
        # One row is repeated, which takes less time than adding zeros.
        filled = x_NI.expand(_MIN_ROWS, -1) if num_rows == 1 else F.pad(x_NI, (0, 0, 0, _MIN_ROWS - num_left))
        out_NO = self._multiply(filled)[:num_rows]
        return out_NO if x.ndim == 2 else out_NO.view(*x.shape[:-1], -1)

    def _pack(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        self.weight = torch.ops.quantized.linear_prepack_fp16(weight_OI.contiguous(), bias_O)

    def _multiply(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self.weight)
        return out


class _SerialHalfLinear(_HalfLinear):
    """The same kernel in one thread, by an older call: 2 us of overhead instead of 14, for small weights or one thread.

    PyTorch has deprecated it; requirements.txt pins a release that has it. One row through two layers of the
    embedded code predictor takes 158 us, 295 with transposed float32 weights, 300 with `F.linear`; eight rows take 262,
    391 and 600. Large weights take one thread a tenth less time than by the other call.
    """

    @override
    def _pack(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        with warnings.catch_warnings():
            # Both calls warn once per process that they are deprecated; the second one is made here to hide that too.
            warnings.filterwarnings("ignore", message="fbgemm_", category=UserWarning)
            self.weight = torch.fbgemm_pack_gemm_matrix_fp16(weight_OI.contiguous())
            self.bias = bias_O
            self._multiply(weight_OI[:1])

    @override
    def _multiply(self, x: Tensor) -> Tensor:
        return torch.fbgemm_linear_fp16_weight_fp32_activation(x, self.weight, self.bias)


class _PackedLinear:
    """Weights reordered into oneDNN's blocked layout, as torch.compile does for frozen models."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, num_rows: int) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), num_rows)
        self.bias = bias_O

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return out


class _TransposedLinear:
    """Small float32 weights, transposed to the layout that the product reads.

    `F.linear` reads them across, which is slow for few rows: at 2048 x 256 one row takes 45 us and here 29, eight rows
    127 and 73.
    """

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        self.weight_IO, self.bias = weight_OI.t().contiguous(), bias_O

    def __call__(self, x: Tensor) -> Tensor:
        out = x @ self.weight_IO
        return out if self.bias is None else out.add_(self.bias)


class _Int8Linear:
    """Int8 weights per output channel, int8 activations per row.

    Every row is scaled to [-1, 1] before it is quantized on a fixed grid, and integer sums are exact, so a row's result
    does not depend on the other rows. With dynamic quantization of the whole input, takes in a batch would affect each
    other.
    """

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        steps_OI, scale_O = _quantize(weight_OI)
        zeros_O = torch.zeros_like(scale_O, dtype=torch.long)
        with warnings.catch_warnings():
            # The packed kernel takes its weights as a quantized tensor, a deprecated type, which is used only here.
            warnings.filterwarnings("ignore", message="torch.quantize_per_tensor", category=UserWarning)
            quantized = torch._make_per_channel_quantized_tensor(steps_OI, scale_O.double(), zeros_O, 0)
        self.weight = torch.ops.quantized.linear_prepack(quantized, None)
        self.bias = bias_O.float() if bias_O is not None else None
        # Without VNNI the kernel adds pairs of products in 16 bits; seven-bit activations cannot overflow them.
        self.steps = 127 if torch.cpu._is_vnni_supported() else 63

    def __call__(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12)
        out: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / scale, 1.0 / self.steps, self.steps + 1, self.weight
        )
        out = out.mul_(scale)
        return out if self.bias is None else out + self.bias


class _SmallInt8Linear:
    """Int8 weights per output channel, bfloat16 activations: twice the speed where weights are small.

    Quantizing the activations as well is faster only for large weights.
    """

    WIDTH_STEP = 16
    """The kernel reads its input in steps of this many elements, past the end if the width is not a multiple."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        self.weight, scale_O = _quantize(weight_OI)
        self.scale = scale_O.to(torch.bfloat16)
        self.bias = bias_O.float() if bias_O is not None else None

    def __call__(self, x: Tensor) -> Tensor:
        x_NI = x.to(torch.bfloat16)
        if x.ndim != 2:
            x_NI = x_NI.reshape(-1, x.shape[-1])
        out = torch._weight_int8pack_mm(x_NI, self.weight, self.scale).float()
        if x.ndim != 2:
            out = out.view(*x.shape[:-1], -1)
        return out if self.bias is None else out + self.bias


def _quantize(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Int8 steps (O, I) and the float32 size of a step per output channel (O,)."""
    weight_OI = weight_OI.float()
    scale_O = weight_OI.abs().amax(dim=1).clamp(min=1e-12) / 127
    return torch.round(weight_OI / scale_O.unsqueeze(1)).to(torch.int8), scale_O
