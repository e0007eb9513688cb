"""Adapters with random matrices, for tests and benchmarks."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.model.lora_config import ADAPTED_LAYERS, LoraConfig
from training.model.network.lora import merge_adapter
from training.model.network.talker import Talker

CONFIG = LoraConfig(rank=4, alpha=8, layers=ADAPTED_LAYERS)


def random_adapter(
    talker: Talker, config: LoraConfig = CONFIG, *, seed: int = 0, size: float = 0.5, only: str = ""
) -> dict[str, Tensor]:
    """Matrices by name whose product is about `size` times as large as the weights; of names that match `only`."""
    generator = torch.Generator().manual_seed(seed)
    adapter: dict[str, Tensor] = {}
    for name, layer in talker.named_modules():
        if isinstance(layer, nn.Linear) and re.fullmatch(config.pattern, name) and re.match(only, name):
            inputs, outputs, rank = layer.in_features, layer.out_features, config.rank
            spread = size * 0.02 / config.scale
            adapter[f"{name}.lora_A.weight"] = torch.randn(rank, inputs, generator=generator) * rank**-0.5
            adapter[f"{name}.lora_B.weight"] = torch.randn(outputs, rank, generator=generator) * spread
    return adapter


def merged(talker: Talker, adapter: Mapping[str, Tensor], config: LoraConfig = CONFIG) -> Talker:
    """A plain talker that computes the same."""
    whole = copy.deepcopy(talker)
    whole.load_state_dict(merge_adapter(whole.state_dict(), adapter, config))
    return whole
