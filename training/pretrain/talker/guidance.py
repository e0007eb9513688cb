"""Guided attention: an auxiliary loss that aligns some of the talker's heads with the text (Tachibana et al. 2018).

That frames follow the text from left to right must be learnt from the losses alone, and a small network spends most of
its training on the plateau before it does. Utterances are trimmed and synthetic voices speak evenly, so a frame's
relative position in the utterance is roughly that of its letters in the text. Half the heads of two middle layers are
kept in that neighbourhood, with a weight that fades out until the share of the run in `TalkerJob.guidance_until`.
Within it, attention is free: a bell-shaped target would make the heads read a blend of ten letters. The other heads are
not guided, and the network is the public one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from training.model.network.layers import Attention, rotate
from training.model.network.talker import Talker

# Width to either side, for uneven speech: a share of the text, but at least a few letters.
_REACH_SHARE, _MIN_REACH = 0.1, 4.0


class Span(NamedTuple):
    """Frames and the text they speak, as positions in a sequence."""

    first_query: int
    """The position that predicts the first frame."""
    num_frames: int
    first_text: int
    num_letters: int


def spans_of(prompt_steps: int, num_frames: int, num_letters: int, reference: tuple[int, int] = (0, 0)) -> list[Span]:
    """The positions of an example's frames and text, in either layout.

    Args:
        prompt_steps: length of the prompt; its last position predicts the first frame.
        num_frames: frames of the answer.
        num_letters: text tokens of the answer.
        reference: frames and text tokens of the preceding reference.
    """
    reference_frames, reference_letters = reference
    # The position that begins speech follows the text and its end; reference frames follow it.
    begin = prompt_steps - 1 - reference_frames
    first_text = begin - 1 - num_letters
    answer = Span(prompt_steps - 1, num_frames, first_text, num_letters)
    if not reference_frames:
        return [answer]
    return [Span(begin, reference_frames, first_text - reference_letters, reference_letters), answer]


class AttentionGuide:
    """Measures how much attention of half the heads in two layers is off the text being spoken."""

    def __init__(self, talker: Talker) -> None:
        middle = len(talker.model.layers) // 2
        chosen = {max(0, middle - 1), middle}
        layers = [layer.self_attn for number, layer in enumerate(talker.model.layers) if number in chosen]
        self._attentions: list[Attention] = [layer for layer in layers if isinstance(layer, Attention)]
        self._inputs: dict[Attention, tuple[Tensor, tuple[Tensor, Tensor]]] = {}
        for attention in self._attentions:
            attention.register_forward_pre_hook(self._keep_inputs)

    def _keep_inputs(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:  # Any: as torch declares the hook
        assert isinstance(module, Attention)
        self._inputs[module] = (arguments[0], arguments[1])

    def loss(self, allowed: Tensor) -> Tensor:
        """Negative log of the guided heads' attention on `allowed` in the last forward, in nats."""
        is_query = allowed.any(dim=-1)
        losses = []
        for attention in self._attentions:
            logits = _logits(attention, *self._inputs[attention]).float()
            inside = logits.masked_fill(~allowed.unsqueeze(1), float("-inf"))
            missed = logits.logsumexp(dim=-1) - inside.logsumexp(dim=-1)
            losses.append(missed.transpose(1, 2)[is_query].mean())
        return torch.stack(losses).mean()

    def forget(self) -> None:
        """Free the activations of the last forward."""
        self._inputs.clear()


def neighbourhoods(spans: list[list[Span]], num_steps: int) -> Tensor:
    """The keys each step is guided to, bool (examples, steps, steps): letters near its place in the text, or none."""
    allowed = torch.zeros(len(spans), num_steps, num_steps, dtype=torch.bool)
    for row, of_example in enumerate(spans):
        for span in of_example:
            places = (torch.arange(span.num_frames) + 0.5) / span.num_frames * span.num_letters
            letters = torch.arange(span.num_letters) + 0.5
            reach = max(_MIN_REACH, _REACH_SHARE * span.num_letters)
            queries = slice(span.first_query, span.first_query + span.num_frames)
            keys = slice(span.first_text, span.first_text + span.num_letters)
            allowed[row, queries, keys] = (letters - places.unsqueeze(1)).abs() <= reach
    return allowed


def _logits(attention: Attention, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Scores of the guided half of the heads, (examples, heads, steps, steps), computed as in the layer."""
    cos, sin = rotary
    heads = (*x.shape[:2], -1, attention.head_dim)
    queries = rotate(attention.q_norm(attention.q_proj(x).view(heads)).transpose(1, 2), cos, sin)
    keys = rotate(attention.k_norm(attention.k_proj(x).view(heads)).transpose(1, 2), cos, sin)
    keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)
    guided = max(1, queries.shape[1] // 2)
    scores: Tensor = queries[:, :guided] @ keys[:, :guided].transpose(-1, -2) / attention.head_dim**0.5
    num_steps = x.shape[1]
    ahead = torch.ones(num_steps, num_steps, dtype=torch.bool, device=x.device).triu(1)
    return scores.masked_fill(ahead, float("-inf"))
