# Shape letters: B slot, V vocabulary, W its likeliest codes.
"""Draws codes from logits on the device, using uniform numbers generated beforehand.

A draw inverts the cumulative distribution at one uniform number. The numbers come from a generator per take, so a take
depends on its own seed only, whatever else is in the batch; and a draw has no random state, so it can be part of a
captured graph.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor

from training.model.config import NUM_CONTROL_CODES, TalkerConfig
from training.model.generation_defaults import ROWS_OF_GUIDED

BELOW_ONE = 1 - 2**-22
"""Keeps uniform * total below total despite rounding, so that a code beyond the cut-off is never drawn."""

NARROW = 64
"""Draws are made among this many codes, or among all of them; the usual top-k of 50 fits."""


DrawPlan = tuple[bool, bool, bool, bool]
"""Which operations a draw consists of: among few codes, among all, with top-p, and taking the likeliest."""

USUAL_PLANS: tuple[DrawPlan, ...] = ((True, False, False, False), (True, False, False, True))
"""Of the checkpoints' own settings: in every slot, and beside slots that are free."""

_PER_SLOT = ("temperature_B1", "top_p_B", "greedy_B", "wide_B", "cut_BV")


class DrawSettings:
    """Sampling settings of every slot for codebook 0 or for the others, as tensors on the device.

    The Python values in `plan` choose which operations run. They do not change what a slot draws: each slot is drawn
    among a number of codes that its own settings decide, whatever the other slots ask for.
    """

    def __init__(self, num_slots: int, vocabulary: int, device: torch.device | str) -> None:
        self.vocabulary = vocabulary
        self.narrow = min(NARROW, vocabulary)
        self.temperature_B1 = torch.ones(num_slots, 1, device=device)
        self.top_p_B = torch.full((num_slots,), torch.inf, device=device)
        self.greedy_B = torch.ones(num_slots, dtype=torch.bool, device=device)
        self.wide_B = torch.zeros(num_slots, dtype=torch.bool, device=device)
        # True behind a slot's top-k, by rank.
        self.cut_BV = torch.zeros(num_slots, vocabulary, dtype=torch.bool, device=device)
        self._slots: list[tuple[float, int, float] | None] = [None] * num_slots
        self.any_narrow, self.any_wide, self.any_top_p, self.any_greedy = False, False, False, True

    @property
    def plan(self) -> DrawPlan:
        """Selects the operations of a draw, and so the captured graph that holds them."""
        return self.any_narrow, self.any_wide, self.any_top_p, self.any_greedy

    def set_slot(self, slot: int, settings: tuple[float, int, float] | None) -> None:
        """Set a slot's (temperature, top_k, top_p); None when it is released."""
        self._slots[slot] = settings
        temperature, top_k, top_p = settings or (0.0, 0, 1.0)
        self.temperature_B1[slot] = temperature if temperature > 0 else 1.0
        self.greedy_B[slot] = temperature == 0
        # Not 1: rounded sums may reach it before the last code.
        self.top_p_B[slot] = top_p if top_p < 1 else torch.inf
        self.wide_B[slot] = self._is_wide(top_k)
        self.cut_BV[slot] = False
        self.cut_BV[slot, self._width(top_k) :] = True
        self._choose_plan()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything that setting a slot changes, apart from the plan."""
        return tuple(getattr(self, name) for name in _PER_SLOT)

    def view(self, start: int, num_slots: int) -> Self:
        """Settings of adjacent slots that share these tensors; valid until a slot is set."""
        seen = copy.copy(self)
        for name in _PER_SLOT:
            setattr(seen, name, getattr(self, name).narrow(0, start, num_slots))
        seen._slots = self._slots[start : start + num_slots]
        seen._choose_plan()
        return seen

    @contextmanager
    def planned(self, plan: DrawPlan) -> Iterator[None]:
        """Draw by another plan meanwhile, to capture its operations; no slot may be set."""
        before = self.plan
        self.any_narrow, self.any_wide, self.any_top_p, self.any_greedy = plan
        try:
            yield
        finally:
            self.any_narrow, self.any_wide, self.any_top_p, self.any_greedy = before

    def _choose_plan(self) -> None:
        # Greedy and empty slots take the likeliest code, whatever is cut off behind it.
        drawn = [entry for entry in self._slots if entry is not None and entry[0] > 0]
        wide = [self._is_wide(entry[1]) for entry in drawn]
        self.any_narrow, self.any_wide = not all(wide), any(wide)
        self.any_top_p = any(entry[2] < 1 for entry in drawn)
        self.any_greedy = len(drawn) < len(self._slots)

    def _width(self, top_k: int) -> int:
        return min(top_k, self.vocabulary) if top_k > 0 else self.vocabulary

    def _is_wide(self, top_k: int) -> bool:
        return self._width(top_k) > self.narrow


def draw(logits_BV: Tensor, uniform_B: Tensor, settings: DrawSettings) -> Tensor:
    """Draw one code per slot.

    Args:
        logits_BV: float32 logits; -inf where a code is forbidden.
        uniform_B: one number in [0, 1) per slot.
        settings: temperature, top-k and top-p per slot.

    Returns:
        (B,) int64 codes.
    """
    if not (settings.any_narrow or settings.any_wide):
        return logits_BV.argmax(dim=-1)
    if not settings.any_wide:
        drawn_B = _draw_among(logits_BV, uniform_B, settings, settings.narrow)
    else:
        drawn_B = _draw_among(logits_BV, uniform_B, settings, settings.vocabulary)
        if settings.any_narrow:
            narrow_B = _draw_among(logits_BV, uniform_B, settings, settings.narrow)
            drawn_B = torch.where(settings.wide_B, drawn_B, narrow_B)
    return torch.where(settings.greedy_B, logits_BV.argmax(dim=-1), drawn_B) if settings.any_greedy else drawn_B


def _draw_among(logits_BV: Tensor, uniform_B: Tensor, settings: DrawSettings, width: int) -> Tensor:
    """Draw every slot among its `width` likeliest codes, except those its own settings cut off.

    Sums run from the likeliest code on, so codes that are cut off only add zeros at the end. Probabilities are never
    normalised, because a softmax adds its terms in an order that depends on their number.
    """
    values_BW, codes_BW = logits_BV.topk(width, dim=-1)
    values_BW.div_(settings.temperature_B1)
    weights_BW = (values_BW - values_BW[:, :1]).exp_().masked_fill_(settings.cut_BV[:, :width], 0.0)
    cumulative_BW = weights_BW.cumsum(dim=-1)
    if settings.any_top_p:
        most_B1 = cumulative_BW[:, -1:] * settings.top_p_B.unsqueeze(1)
        weights_BW = weights_BW * (cumulative_BW - weights_BW < most_B1)
        cumulative_BW = weights_BW.cumsum(dim=-1)
    passed_B1 = (cumulative_BW[:, -1:] * uniform_B.unsqueeze(1)).mul_(BELOW_ONE)
    # Clamped in case logits are NaN: one broken take must not bring down the others.
    chosen_B1 = torch.searchsorted(cumulative_BW, passed_B1, right=True).clamp_(max=width - 1)
    return codes_BW.gather(1, chosen_B1).squeeze(1)


def guide(logits_BV: Tensor, scale_B: Tensor) -> Tensor:
    """Classifier-free guidance (Ho & Salimans 2022): move a take's logits away from those without text and speaker.

    Args:
        logits_BV: two rows for each take.
        scale_B: of both rows; 1 gives the take's own logits.

    Returns:
        (B, V), both rows of a take alike.
    """
    own_BV, unconditional_BV = logits_BV.view(-1, ROWS_OF_GUIDED, logits_BV.shape[-1]).unbind(dim=1)
    scale_B1 = scale_B.view(-1, ROWS_OF_GUIDED)[:, :1]
    return (unconditional_BV + scale_B1 * (own_BV - unconditional_BV)).repeat_interleave(ROWS_OF_GUIDED, dim=0)


def penalize_repetition(logits_BV: Tensor, used_BV: Tensor, penalty_B: Tensor) -> Tensor:
    """Make codes already used in a take less likely; logits of unused codes are unchanged."""
    penalty = penalty_B.unsqueeze(1)
    penalized = torch.where(logits_BV < 0, logits_BV * penalty, logits_BV / penalty)
    return torch.where(used_BV, penalized, logits_BV)


def first_code_mask(config: TalkerConfig, device: torch.device) -> Tensor:
    """A mask to add to the logits of codebook 0 (V,): -inf for control ids other than the end of speech."""
    mask_V = torch.zeros(config.vocab_size, device=device)
    mask_V[max(0, config.vocab_size - NUM_CONTROL_CODES) :] = -torch.inf
    mask_V[config.codec_eos_token_id] = 0
    return mask_V
