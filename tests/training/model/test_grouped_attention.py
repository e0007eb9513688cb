from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from training.model.network.grouped_attention import grouped_attention


@pytest.mark.parametrize("autocast", [False, True])
def test_gradients_in_bfloat16_are_those_of_float32_but_for_their_rounding(autocast):
    generator = torch.Generator().manual_seed(2)
    heads = [torch.randn(3, num_heads, 16, 8, generator=generator) for num_heads in (4, 2, 2)]
    upstream = torch.randn(3, 4, 16, 8, generator=generator)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        # What float32 is compared with has been rounded as well.
        q, k, v = (part.bfloat16().to(dtype).requires_grad_() for part in heads)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast and dtype == torch.bfloat16):
            attended = grouped_attention(q, k, v, is_causal=True)
        assert attended.dtype == dtype
        gradients = torch.autograd.grad((attended * upstream).sum(), (q, k, v))
        assert all(gradient.dtype == dtype for gradient in gradients)
        found.append([attended, *gradients])
    for exact, rounded in zip(*found, strict=True):
        torch.testing.assert_close(rounded.float(), exact, rtol=2**-6, atol=0.03)


class Attended(TorchDispatchMode):
    """Notes in which dtype attention is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes = set[torch.dtype]()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "scaled_dot_product" in str(function):
            self.dtypes.add(args[0].dtype)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(("learns", "dtype"), [(True, torch.float32), (False, torch.bfloat16)])
def test_only_what_learns_leaves_bfloat16(learns, dtype, autocast):
    q, k, v = (torch.randn(1, heads, 4, 8, dtype=torch.bfloat16, requires_grad=learns) for heads in (2, 1, 1))
    with Attended() as watched, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        grouped_attention(q, k, v, is_causal=True)
    assert watched.dtypes == {dtype}
