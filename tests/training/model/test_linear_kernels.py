from __future__ import annotations

import pytest
import torch
from torch import nn

from training.model.network.packed_linear import COMPUTE_DTYPE, SMALL_WEIGHT, pack

# (input width, output width): small, small with a width the small kernel cannot read, and large.
SIZES = {"small": (64, 48), "odd": (40, 48), "large": (1024, SMALL_WEIGHT // 1024 + 1)}
TOLERANCE = {"fp32": 1e-5, "bf16": 0.02, "int8": 0.03}


@pytest.fixture(params=SIZES)
def layer(request):
    return nn.Linear(*SIZES[request.param])


@pytest.mark.parametrize("precision", list(TOLERANCE))
@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3)])
def test_every_kernel_is_the_layer(layer, precision, shape):
    x = torch.randn(*shape, layer.in_features)
    with torch.inference_mode():
        exact = layer(x)
        found = pack([layer], precision)(x.to(COMPUTE_DTYPE[precision]))
    assert found.shape == exact.shape
    assert (found.float() - exact).square().mean() < TOLERANCE[precision] ** 2 * exact.square().mean()


def test_an_int8_row_does_not_depend_on_the_others(layer):
    linear = pack([layer], "int8")
    rows = torch.randn(5, layer.in_features) * torch.tensor([1.0, 1000.0, 1e-3, 1.0, 1.0]).unsqueeze(1)
    alone = torch.cat([linear(row) for row in rows.split(1)])
    assert torch.equal(linear(rows), alone)


def test_float32_of_large_layers_is_the_same_for_any_number_of_threads():
    """One thread takes another call for weights that half precision represents."""
    inputs, outputs = SIZES["large"]
    layer = nn.Linear(inputs, outputs).bfloat16().float()
    x = torch.randn(3, inputs)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(pack([layer], "fp32")(x))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_a_slice_of_a_larger_tensor_is_read_where_it_lies(layer):
    linear = pack([layer], "int8")
    x = torch.randn(4, 2, layer.in_features)
    assert torch.equal(linear(x[:, 1]), linear(x[:, 1].contiguous()))
