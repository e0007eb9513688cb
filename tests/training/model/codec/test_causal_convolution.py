"""Causal convolutions against PyTorch's own, whole and in chunks."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from training.model.codec.convolution import CausalConvolution, CausalTransposedConvolution
from training.model.codec.stream_state import StreamState

# Short chunks and long ones take different roads through the arithmetic.
chunkings = st.lists(st.one_of(st.integers(1, 5), st.integers(60, 70)), min_size=1, max_size=4)


def filter_in_chunks(layer: nn.Module, signal_BDT: Tensor, chunks: list[int]) -> Tensor:
    state = StreamState(layer, signal_BDT.shape[0])
    return torch.cat([layer(chunk_BDT, state) for chunk_BDT in signal_BDT.split(chunks, dim=-1)], dim=-1)


@settings(deadline=None, max_examples=40)
@given(
    chunks=chunkings,
    kernel_size=st.integers(1, 7),
    dilation=st.integers(1, 9),
    grouped=st.booleans(),
)
@torch.no_grad()
def test_convolution(chunks: list[int], kernel_size: int, dilation: int, grouped: bool) -> None:
    torch.manual_seed(0)
    layer = CausalConvolution(4, 8, kernel_size, dilation=dilation, groups=4 if grouped else 1).double()
    signal_BDT = torch.randn(2, 4, sum(chunks)).double()
    expected_BDT = layer.conv(F.pad(signal_BDT, ((kernel_size - 1) * dilation, 0)))
    torch.testing.assert_close(layer(signal_BDT), expected_BDT)
    torch.testing.assert_close(filter_in_chunks(layer, signal_BDT, chunks), expected_BDT)


@settings(deadline=None, max_examples=20)
@given(chunks=chunkings, stride=st.integers(1, 8))
@torch.no_grad()
def test_strided_convolution(chunks: list[int], stride: int) -> None:
    torch.manual_seed(0)
    layer = CausalConvolution(4, 8, 2 * stride, stride=stride).double()
    signal_BDT = torch.randn(2, 4, sum(chunks) * stride).double()
    expected_BDT = layer.conv(F.pad(signal_BDT, (stride, 0)))
    torch.testing.assert_close(layer(signal_BDT), expected_BDT)
    in_chunks_BDT = filter_in_chunks(layer, signal_BDT, [chunk * stride for chunk in chunks])
    torch.testing.assert_close(in_chunks_BDT, expected_BDT)


@torch.no_grad()
def test_replicate_padding_repeats_the_first_value() -> None:
    layer = CausalConvolution(1, 1, 4, stride=2, bias=False, padding="replicate").double()
    constant_BDT = torch.full((1, 1, 10), 3.0).double()
    torch.testing.assert_close(layer(constant_BDT), 3 * layer.conv.weight.sum().expand(1, 1, 5))


@settings(deadline=None, max_examples=30)
@given(chunks=chunkings, stride=st.integers(1, 8), overlap=st.booleans())
@torch.no_grad()
def test_transposed_convolution(chunks: list[int], stride: int, overlap: bool) -> None:
    torch.manual_seed(0)
    layer = CausalTransposedConvolution(6, 3, stride=stride, overlap=overlap).double()
    signal_BDT = torch.randn(2, 6, sum(chunks)).double()
    expected_BDT = layer.conv(signal_BDT)[..., : sum(chunks) * stride]
    torch.testing.assert_close(layer(signal_BDT), expected_BDT)
    torch.testing.assert_close(filter_in_chunks(layer, signal_BDT, chunks), expected_BDT)


def test_short_and_long_signals_have_the_same_gradients() -> None:
    """The product form is as differentiable as PyTorch's layers."""
    layer = CausalTransposedConvolution(6, 3, stride=4, overlap=True).double()
    signal_BDT = torch.randn(2, 6, 5).double()
    (ours,) = torch.autograd.grad(layer(signal_BDT).square().sum(), [layer.conv.weight])
    (theirs,) = torch.autograd.grad(layer.conv(signal_BDT)[..., :20].square().sum(), [layer.conv.weight])
    torch.testing.assert_close(ours, theirs)
