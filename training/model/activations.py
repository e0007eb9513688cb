"""Activations by the names that configs give them, without loading all else that transformers has beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

# What published checkpoints use. The others are looked up in transformers, which takes seconds to load.
_USUAL: Mapping[str, Callable[[], nn.Module]] = {"silu": nn.SiLU, "gelu": nn.GELU, "relu": nn.ReLU}


def is_activation(name: str) -> bool:
    """Whether an activation goes by this name."""
    return name in _USUAL or name in _others()


def build_activation(name: str) -> nn.Module:
    """The activation of this name; KeyError if there is none."""
    activation: nn.Module = _USUAL[name]() if name in _USUAL else _others()[name]
    return activation


def _others() -> Mapping[str, Any]:  # Any: a table that builds what is looked up, untyped
    from transformers.activations import ACT2FN  # noqa: PLC0415 - see `_USUAL`

    table: Mapping[str, Any] = ACT2FN
    return table
