# Shape letters: B slot, D talker width, Q codebook, V codec vocabulary.
"""The decode loop's per-slot state on the device."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor

from training.model.config import ModelConfig
from training.model.generation.sampling import DrawSettings


@dataclass(frozen=True, kw_only=True)
class SlotState:
    """Tensors that a frame reads and writes in place.

    Attributes:
        hidden_BD: the talker's last hidden state.
        frame_BD: sum of the last frame's code embeddings.
        beside_BD: text embedding that the talker reads with it.
        next_code_B: codebook 0 of the next frame, or the end of speech.
        codes_BQ: the last frame.
        positions_B: steps in the talker's cache.
        active_B: 1 for a slot with a take, else 0.
        no_end_B: true while the end of speech cannot be drawn.
        used_BV: codes of codebook 0 that the take has used.
        penalty_B: repetition penalty on those.
        guidance_B: scale of a guided take's guidance.
        uniform_BQ: uniform numbers to draw the next frame's codes with.
        first_draw, rest_draw: how codebook 0 and the others are drawn.
    """

    hidden_BD: Tensor
    frame_BD: Tensor
    beside_BD: Tensor
    next_code_B: Tensor
    codes_BQ: Tensor
    positions_B: Tensor
    active_B: Tensor
    no_end_B: Tensor
    used_BV: Tensor
    penalty_B: Tensor
    guidance_B: Tensor
    uniform_BQ: Tensor
    first_draw: DrawSettings
    rest_draw: DrawSettings

    @classmethod
    def allocate(cls, config: ModelConfig, num_slots: int, dtype: torch.dtype, device: torch.device) -> Self:
        """Allocate the state of empty slots."""
        talker, slots = config.talker, num_slots

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(slots, *shape, dtype=dtype, device=device)

        return cls(
            hidden_BD=zeros(talker.hidden_size, dtype=dtype),
            frame_BD=zeros(talker.hidden_size, dtype=dtype),
            beside_BD=zeros(talker.hidden_size, dtype=dtype),
            next_code_B=zeros(dtype=torch.long),
            codes_BQ=zeros(talker.num_code_groups, dtype=torch.long),
            positions_B=zeros(dtype=torch.long),
            active_B=zeros(dtype=torch.long),
            no_end_B=zeros(dtype=torch.bool),
            used_BV=zeros(talker.vocab_size, dtype=torch.bool),
            penalty_B=torch.ones(slots, device=device),
            guidance_B=torch.ones(slots, device=device),
            uniform_BQ=zeros(talker.num_code_groups, dtype=torch.float32),
            first_draw=DrawSettings(slots, talker.vocab_size, device),
            rest_draw=DrawSettings(slots, config.code_predictor.vocab_size, device),
        )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that it consists of."""
        found = [getattr(self, field.name) for field in fields(self)]
        own = [value for value in found if isinstance(value, Tensor)]
        return (*own, *self.first_draw.tensors, *self.rest_draw.tensors)

    def view(self, start: int, num_slots: int) -> Self:
        """Adjacent slots that share this state's memory; valid until a take is admitted or released."""
        if num_slots == len(self.active_B):
            return self
        # Any: tensors, and two DrawSettings that are divided the same way.
        parts: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            is_tensor = isinstance(value, Tensor)
            parts[field.name] = value.narrow(0, start, num_slots) if is_tensor else value.view(start, num_slots)
        return type(self)(**parts)
