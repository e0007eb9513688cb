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

from training.model.errors import CheckpointError
from training.model.lora_config import ADAPTED_LAYERS, LoraConfig

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


def check_adapter_shapes(shapes: Mapping[str, tuple[int, ...]], talker: nn.Module) -> None:
    """Refuse an adapter that does not fit a talker, which may be on the meta device.

    Args:
        shapes: of all tensors of the adapter, by the names that they have in the adapted network.
        talker: what it is put onto.

    Raises:
        CheckpointError: a layer that the talker lacks, half a pair, or other sizes.
    """
    pattern = LoraConfig(rank=1, alpha=1, layers=ADAPTED_LAYERS).pattern
    linears = {name: layer for name, layer in talker.named_modules() if re.fullmatch(pattern, name)}
    layers = adapted_names(shapes)
    strays = shapes.keys() - {layer + end for layer in layers for end in (_DOWN, _UP)}
    for layer in layers:
        linear, down, up = linears.get(layer), shapes[layer + _DOWN], shapes.get(layer + _UP, ())
        if linear is None or len(down) != 2 or len(up) != 2:
            strays.add(layer)
            continue
        assert isinstance(linear, nn.Linear)
        fits = (down[1], up[0]) == (linear.in_features, linear.out_features) and 0 < down[0] == up[1]
        if not fits or down[0] > max(down[1], up[0]):
            strays.add(layer)
    if strays or not layers:
        first = min(strays, default="nothing that is adapted")[:80]
        raise CheckpointError(
            f"The adapter does not fit this model: it has {first}. It was made for another model: use that one."
        )


def matrices_of(adapter: Mapping[str, Tensor], layer: str) -> tuple[Tensor, Tensor] | None:
    """The two matrices of a layer, (R, I) and (O, R); None if it is not adapted."""
    down = adapter.get(layer + _DOWN)
    return None if down is None else (down, adapter[layer + _UP])
