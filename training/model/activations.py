"""Activations by their names in configs, without importing transformers for the usual ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

# Those of the published checkpoints, by PyTorch's names. Others are looked up in transformers.
_USUAL = {"silu": "SiLU", "gelu": "GELU", "relu": "ReLU"}


def is_activation(name: str) -> bool:
    """Whether there is an activation of this name."""
    return name in _USUAL or name in _others()


def build_activation(name: str) -> nn.Module:
    """The activation of this name. Raises KeyError if there is none."""
    from torch import nn  # noqa: PLC0415 - configurations are read where no network is built, and torch takes a second

    activation: nn.Module = getattr(nn, _USUAL[name])() if name in _USUAL else _others()[name]
    return activation


def _others() -> Mapping[str, Any]:  # Any: transformers' untyped table, which builds on look-up
    from transformers.activations import ACT2FN  # noqa: PLC0415 - takes seconds

    table: Mapping[str, Any] = ACT2FN
    return table
