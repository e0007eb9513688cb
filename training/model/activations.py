"""Activations by their names in configs, without importing transformers for the usual ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

# Those of the published checkpoints. Others are looked up in transformers, which takes seconds to import.
_USUAL: Mapping[str, Callable[[], nn.Module]] = {"silu": nn.SiLU, "gelu": nn.GELU, "relu": nn.ReLU}


def is_activation(name: str) -> bool:
    """Whether there is an activation of this name."""
    return name in _USUAL or name in _others()


def build_activation(name: str) -> nn.Module:
    """The activation of this name. Raises KeyError if there is none."""
    activation: nn.Module = _USUAL[name]() if name in _USUAL else _others()[name]
    return activation


def _others() -> Mapping[str, Any]:  # Any: transformers' untyped table, which builds on look-up
    from transformers.activations import ACT2FN  # noqa: PLC0415 - see `_USUAL`

    table: Mapping[str, Any] = ACT2FN
    return table
