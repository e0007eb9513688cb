from __future__ import annotations

import pytest
import torch
from torch import nn

from training.model.network.packed_linear import COMPUTE_DTYPE, pack

TOLERANCE = {"fp32": 1e-5, "bf16": 0.02, "int8": 0.03}


def relative_error(found, exact):
    return ((found.float() - exact).square().mean() / exact.square().mean()).sqrt()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_fused_call_is_its_layers_side_by_side(precision, bias, rows):
    layers = [nn.Linear(48, width, bias=bias) for width in (96, 32)]
    x = torch.randn(rows, 3, 48)
    with torch.inference_mode():
        exact = torch.cat([layer(x) for layer in layers], dim=-1)
        found = pack(layers, precision, num_rows=rows)(x.to(COMPUTE_DTYPE[precision]))
    assert found.dtype == COMPUTE_DTYPE[precision]
    assert relative_error(found, exact) < TOLERANCE[precision]


def test_an_int8_row_does_not_depend_on_the_others():
    linear = pack([nn.Linear(64, 64, bias=False)], "int8")
    quiet, loud = torch.randn(1, 64), torch.randn(1, 64) * 1000
    assert torch.equal(linear(torch.cat((quiet, loud)))[:1], linear(quiet))


def test_int8_of_silence_is_silence():
    assert torch.equal(pack([nn.Linear(8, 4, bias=False)], "int8")(torch.zeros(2, 8)), torch.zeros(2, 4))
