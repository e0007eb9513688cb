"""The shape of a low-rank adapter; the layers themselves are in `network/lora.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

AdaptedLayers = Literal["attention", "mlp", "code-predictor"]
ADAPTED_LAYERS: tuple[AdaptedLayers, ...] = get_args(AdaptedLayers)

_ATTENTION, _MLP = r"self_attn\.[qkvo]_proj", r"mlp\.(?:gate|up|down)_proj"
_PATTERN_BY_LAYERS: Mapping[AdaptedLayers, str] = MappingProxyType(
    {
        "attention": rf"model\.layers\.\d+\.{_ATTENTION}",
        "mlp": rf"model\.layers\.\d+\.{_MLP}",
        "code-predictor": rf"code_predictor\.model\.layers\.\d+\.(?:{_ATTENTION}|{_MLP})",
    }
)


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """The shape of an adapter.

    Attributes:
        rank: width of the thin matrices.
        alpha: over the rank, the factor of their product.
        dropout: share of the inputs of the thin matrices that are dropped in training.
        layers: which linear layers of a talker are adapted.
    """

    rank: int
    alpha: float
    dropout: float = 0.0
    layers: tuple[AdaptedLayers, ...] = ("attention", "mlp")

    @property
    def scale(self) -> float:
        """Factor of the product."""
        return self.alpha / self.rank

    @property
    def pattern(self) -> str:
        """Regular expression of the names that adapted layers have in a talker."""
        return "|".join(_PATTERN_BY_LAYERS[layers] for layers in self.layers)
