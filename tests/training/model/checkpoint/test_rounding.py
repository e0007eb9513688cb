"""Rounding to bfloat16 by chance: neighbours only, right on average, the same every time."""

from __future__ import annotations

import pytest
import torch

from training.model.checkpoint import rounding
from training.model.checkpoint.rounding import round_on_average


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(rounding, "_PIECE", 1000)


def test_every_element_becomes_one_of_its_neighbours_and_the_same_one_every_time():
    values = torch.randn(70, 90, generator=torch.Generator().manual_seed(1)) * 0.03
    rounded = round_on_average(values, "one")
    assert rounded.dtype == torch.bfloat16
    assert rounded.shape == values.shape
    nearest = values.bfloat16().float()
    step = torch.ldexp(torch.ones_like(values), torch.frexp(values).exponent - 8)
    assert ((rounded.float() - values).abs() < step).all()
    assert not torch.equal(rounded.float(), nearest)
    assert torch.equal(rounded, round_on_average(values, "one"))
    assert not torch.equal(rounded, round_on_average(values, "another"))


def test_numbers_of_bfloat16_stay():
    values = torch.tensor([0.0, -0.0, 1.0, -3.0, 2.0**-130, -(2.0**-133), 3e38]).bfloat16().float()
    assert torch.equal(round_on_average(values, "grid").float(), values)
    assert round_on_average(torch.zeros(0, 3), "empty").shape == (0, 3)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_less_than_half_a_step_is_kept_on_average(share, sign):
    base, step = torch.full((40_000,), sign * 0.046875), sign * 2.0**-12
    found = (round_on_average(base + share * step, "weights").float() - base).mean() / step
    deviation = (share * (1 - share) / len(base)) ** 0.5
    assert abs(float(found) - share) < 5 * deviation
