"""Sampling settings: temperature, top-k, top-p and repetition penalty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training.model.errors import PromptError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How codes are drawn; the defaults are those of the public checkpoints.

    Attributes:
        temperature: divides the logits of codebook 0; 0 takes the likeliest code.
        top_k: keep this many of the likeliest codes; 0 keeps all.
        top_p: keep the likeliest codes up to this total probability; 1 keeps all.
        repetition_penalty: divides positive (multiplies negative) logits of codebook-0 codes already used
            in this take (Keskar et al. 2019).
        residual_temperature, residual_top_k, residual_top_p: the same for codebooks 1..Q-1.
    """

    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.05
    residual_temperature: float = 0.9
    residual_top_k: int = 50
    residual_top_p: float = 1.0

    def __post_init__(self) -> None:
        for name in ("temperature", "residual_temperature"):
            _require(name, getattr(self, name), 0.0, 10.0)
        for name in ("top_p", "residual_top_p"):
            _require(name, getattr(self, name), 1e-6, 1.0)
        for name in ("top_k", "residual_top_k"):
            _require(name, getattr(self, name), 0, 1_000_000)
            if int(getattr(self, name)) != getattr(self, name):
                raise PromptError(f"{name} is {getattr(self, name)}; choose a whole number.")
            object.__setattr__(self, name, int(getattr(self, name)))
        _require("repetition_penalty", self.repetition_penalty, 0.1, 10.0)

    @property
    def of_first_codebook(self) -> tuple[float, int, float]:
        """Temperature, top-k and top-p of codebook 0."""
        return self.temperature, self.top_k, self.top_p

    @property
    def of_residual_codebooks(self) -> tuple[float, int, float]:
        """Temperature, top-k and top-p of codebooks 1..Q-1."""
        return self.residual_temperature, self.residual_top_k, self.residual_top_p

    @classmethod
    def from_generation_config(cls, raw: Mapping[str, Any]) -> Sampling:
        """Defaults of a checkpoint, from its parsed `generation_config.json`; null means absent.

        Raises:
            PromptError: a value is not a number, or out of range.
        """
        names = {name: name for name in ("temperature", "top_k", "top_p", "repetition_penalty")}
        names |= {f"residual_{name}": f"subtalker_{name}" for name in ("temperature", "top_k", "top_p")}
        own = {field: raw[name] for field, name in names.items() if raw.get(name) is not None}
        if raw.get("do_sample") is False:
            own["temperature"] = 0.0
        if raw.get("subtalker_dosample") is False:
            own["residual_temperature"] = 0.0
        return cls(**own)


def _require(name: str, value: float, lowest: float, highest: float) -> None:
    # Written so that NaN fails too.
    if not isinstance(value, int | float) or not lowest <= value <= highest:
        raise PromptError(f"{name} is {value}; choose a value from {lowest} to {highest}.")
