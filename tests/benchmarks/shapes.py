"""The shapes a benchmark runs at, and random weights for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

CONTRACT = Path(__file__).parents[1] / "golden" / "contract"
PUBLIC = {"0.6b": "0.6b-base", "1.7b": "1.7b-base"}


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """Configurations of a checkpoint as parsed JSON: its own and its speech tokenizer's."""

    name: str
    model: dict[str, Any]
    speech_tokenizer: dict[str, Any]


def read_shapes(name: str) -> Shapes:
    """Shapes of a public checkpoint (`0.6b`, `1.7b`) or of a checkpoint folder, of which only the configs are read.

    Raises:
        SystemExit: neither of these.
    """
    if name in PUBLIC:
        contract = json.loads((CONTRACT / f"{PUBLIC[name]}.json").read_text(encoding="utf-8"))
        codec = json.loads((CONTRACT / "speech-tokenizer-12hz.json").read_text(encoding="utf-8"))
        return Shapes(name=f"{name} (public shapes)", model=contract["config"], speech_tokenizer=codec["config"])
    files = [Path(name) / "config.json", Path(name) / "speech_tokenizer" / "config.json"]
    if not all(path.is_file() for path in files):
        raise SystemExit(
            f"--shapes {name}: choose {', '.join(PUBLIC)} or a checkpoint folder with {files[0]} and {files[1]}."
        )
    model, codec = (json.loads(path.read_text(encoding="utf-8")) for path in files)
    return Shapes(name=Path(name).resolve().name, model=model, speech_tokenizer=codec)


def materialize(network: nn.Module, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """Give a network built on the meta device small random weights; norms get gains of one."""
    network = network.to(dtype).to_empty(device=device).requires_grad_(requires_grad=False)
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            parameter.normal_(std=0.02)
        else:
            parameter.fill_(1.0 if "norm" in name else 0.0)
    return network.eval()
