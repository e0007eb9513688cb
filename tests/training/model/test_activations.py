"""The activations that are built here are those of transformers."""

from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from training.model.activations import build_activation, is_activation


@pytest.mark.parametrize("name", ["silu", "gelu", "relu", "quick_gelu"])
def test_an_activation_is_what_transformers_has_by_its_name(name: str) -> None:
    inputs = torch.linspace(-8.0, 8.0, 1001)
    assert is_activation(name)
    assert torch.equal(build_activation(name)(inputs), ACT2FN[name](inputs))


def test_a_name_that_nothing_goes_by() -> None:
    assert not is_activation("nope")
