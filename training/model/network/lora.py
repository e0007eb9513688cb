"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): beside a frozen linear layer the product of two thin matrices.

Only these matrices are trained. They are called what PEFT calls them, and every other parameter keeps its name, so that
files need no renaming in either direction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.model.lora_config import LoraConfig

_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"


class LoraLinear(nn.Linear):
    """A linear layer whose weight is frozen, with an adapter beside."""

    def __init__(self, frozen: nn.Linear, config: LoraConfig) -> None:
        """Take over a layer's own parameters; the adapter's are float32, and are for `put_adapter` to fill."""
        super().__init__(frozen.in_features, frozen.out_features, bias=frozen.bias is not None, device="meta")
        self.weight, self.bias = frozen.weight, frozen.bias
        place = frozen.weight.device
        self.lora_A = nn.Linear(frozen.in_features, config.rank, bias=False, device=place, dtype=torch.float32)
        self.lora_B = nn.Linear(config.rank, frozen.out_features, bias=False, device=place, dtype=torch.float32)
        self.scale, self.dropout = config.scale, config.dropout

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        change: Tensor = self.lora_B(self.lora_A(F.dropout(x, self.dropout, self.training)))
        return super().forward(x) + self.scale * change


def put_adapter(talker: nn.Module, config: LoraConfig, *, seed: int = 0) -> None:
    """Freeze a talker and put an adapter onto it, which changes nothing yet: its second matrices are zero.

    Args:
        talker: changed in place; it may be on the meta device.
        config: which layers, and how.
        seed: of the first matrices, the same on every worker.
    """
    talker.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for name, layer in [named for named in talker.named_modules() if re.fullmatch(config.pattern, named[0])]:
        assert isinstance(layer, nn.Linear), name
        owner, _, attribute = name.rpartition(".")
        adapted = LoraLinear(layer, config)
        if not layer.weight.is_meta:
            # As PEFT fills them.
            nn.init.kaiming_uniform_(adapted.lora_A.weight, a=math.sqrt(5), generator=generator)
            nn.init.zeros_(adapted.lora_B.weight)
        setattr(talker.get_submodule(owner), attribute, adapted)


def is_adapter_weight(name: str) -> bool:
    """Whether a parameter of an adapted network is the adapter's."""
    return name.endswith((_DOWN, _UP))


def merge_adapter(
    weights: Mapping[str, Tensor], adapter: Mapping[str, Tensor], config: LoraConfig
) -> dict[str, Tensor]:
    """The weights of a plain network that computes what the adapted one does.

    Args:
        weights: of the plain network, by name; they are not changed.
        adapter: its tensors, by the names that they have in the adapted network.
        config: of the adapter.
    """
    merged = dict(weights)
    for layer in adapted_names(adapter):
        change = adapter[layer + _UP].float() @ adapter[layer + _DOWN].float()
        before = merged[f"{layer}.weight"]
        merged[f"{layer}.weight"] = (before.float() + config.scale * change).to(before.dtype)
    return merged


def scale_adapter(adapter: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """An adapter that changes `share` as much: the interpolation between base and adapted weights."""
    return {name: tensor * share if name.endswith(_UP) else tensor for name, tensor in adapter.items()}


def adapted_names(adapter: Iterable[str]) -> list[str]:
    """Names of the layers that an adapter's tensors belong to."""
    return [name.removesuffix(_DOWN) for name in adapter if name.endswith(_DOWN)]
