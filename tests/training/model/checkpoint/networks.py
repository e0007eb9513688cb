"""Networks for tests of checkpoints: whatever has the names and shapes that a file has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


def network_like(state: Mapping[str, Tensor]) -> nn.Module:
    """A network on the meta device with these tensors: floating-point ones as parameters, others as buffers."""
    network = nn.Module()
    for name, tensor in state.items():
        *path, leaf = name.split(".")
        owner = network
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner.get_submodule(part)
        empty = torch.empty_like(tensor, device="meta")
        if tensor.is_floating_point():
            owner.register_parameter(leaf, nn.Parameter(empty.float()))
        else:
            owner.register_buffer(leaf, empty)
    return network


def read_state(files: list[Path], prefix: str = "") -> dict[str, Tensor]:
    """The tensors under a prefix, without it, as safetensors' own reader sees them."""
    state: dict[str, Tensor] = {}
    for file in files:
        state |= {name: tensor for name, tensor in load_file(file).items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): tensor for name, tensor in state.items()}


def assert_same_state(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """The same names, dtypes and bits."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, equal_nan=True, msg=f"{name} differs")
