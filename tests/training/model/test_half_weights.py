"""Published weights are bfloat16: in 16 bits they must be the same weights, and others must stay as they are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from training.model.network.packed_linear import SMALL_WEIGHT, _fits_half, pack

SIZES = {"small": (256, 512), "large": (1024, SMALL_WEIGHT // 1024 + 1)}

has_kernel = torch.backends.quantized.engine in ("x86", "fbgemm") and torch.cpu._is_avx2_supported()
pytestmark = pytest.mark.skipif(not has_kernel, reason="this processor reads float32 weights as they are")


def published(layer: nn.Linear) -> nn.Linear:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(parameter.bfloat16())
    return layer


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bias", [False, True])
def test_published_weights_lose_nothing_in_half_the_memory(size, bias):
    layer = published(nn.Linear(*SIZES[size], bias=bias))
    assert _fits_half(layer.weight.detach())
    x = torch.randn(3, layer.in_features)
    with torch.inference_mode():
        exact = nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double() if bias else None)
        assert (pack([layer], "fp32")(x) - exact).abs().max() < 1e-5


@pytest.mark.parametrize("size", SIZES)
def test_a_row_is_the_same_in_any_company(size):
    linear = pack([published(nn.Linear(*SIZES[size], bias=False))], "fp32", num_rows=40)
    rows = torch.randn(40, SIZES[size][0])
    alone = torch.cat([linear(row) for row in rows.split(1)])
    for num_rows in range(2, len(rows) + 1):
        assert torch.equal(linear(rows[:num_rows]), alone[:num_rows])
    assert torch.equal(linear(rows.view(5, 8, -1)).flatten(0, 1), alone)


@pytest.mark.parametrize("value", [1 + 2**-12, 1e5, float("inf"), float("nan")])
def test_weights_that_do_not_fit_are_left_as_they_are(value):
    weight_OI = published(nn.Linear(8, 8, bias=False)).weight.detach()
    weight_OI[3, 4] = value
    assert not _fits_half(weight_OI)
    layer = nn.Linear(8, 8, bias=False)
    layer.weight.data.copy_(weight_OI)
    x = torch.eye(8)[4:5]
    assert torch.equal(pack([layer], "fp32")(x).nan_to_num(), (x @ weight_OI.t()).nan_to_num())
