# Shape letters: B slot, T step, N slot x step, D width, H query head, K key head, G H per K, E head width, C cache.
"""A transformer stack for decoding: packed weights, a preallocated key/value cache, one step at a time.

Built from a `Transformer` and equal to it. Each slot of the cache holds one sequence from position 0 on;
slots are at different lengths, and what lies beyond a slot's length is never attended to, so neither
padding nor a former occupant can be seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.model.config import TransformerConfig
from training.model.layers import DecoderLayer, Transformer, rotary_angles
from training.model.linear import COMPUTE_DTYPE, Precision, RowLinear, pack


@dataclass(frozen=True, kw_only=True)
class Window:
    """Where a call writes to the cache and what it may look at.

    Attributes:
        steps: steps per row.
        slots: rows of the cache the batch axis maps to, written from position 0 on; None for all of them.
        start: first position written, the same for all rows.
        positions_B: the position written per row, where that differs; then there is one step, and no `start`.
        span: cache positions that are looked at, 0..span-1.
        mask: boolean, broadcastable to (B, 1, T, span), true where a row may look; None for all of the span.
        causal: the call starts at position 0 and looks only at itself, each step at those before it.
    """

    steps: int
    span: int
    start: int = 0
    positions_B: Tensor | None = None
    slots: slice | None = None
    mask: Tensor | None = None
    causal: bool = False


class StepNorm:
    """RMS norm of the last axis by the quickest route on its device.

    On CUDA `F.rms_norm` is one kernel. On CPU it is ten operations, and at one step per call an operation costs
    more to start than to do; four do the same: x / hypot(|x|, sqrt(W * eps)) * (gain * sqrt(W)).
    """

    def __init__(self, gain: Tensor, eps: float, dtype: torch.dtype) -> None:
        """Take a gain whose last axis is the width, and which may differ along axes before it."""
        self.width, self.eps, self.dtype = gain.shape[-1], eps, dtype
        self.is_on_cpu = gain.device.type == "cpu"
        self.gain = gain.float() * math.sqrt(self.width) if self.is_on_cpu else gain.to(dtype)
        self.floor = torch.tensor(math.sqrt(eps * self.width), device=gain.device)

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise; the result has the dtype given at the start."""
        if self.is_on_cpu:
            length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
            normed = (x / torch.hypot(length, self.floor)).mul_(self.gain)
            return normed if self.dtype is torch.float32 else normed.to(self.dtype)
        if self.gain.ndim == 1:
            return F.rms_norm(x, (self.width,), self.gain, self.eps)
        return (F.rms_norm(x, (self.width,), None, self.eps) * self.gain).to(self.dtype)


class StepLayer:
    """One decoder layer with fused, packed projections and its part of the cache."""

    def __init__(self, layer: DecoderLayer, cache_shape: tuple[int, int, int, int], precision: Precision) -> None:
        """Pack a layer; `cache_shape` is (B, 2K, C, E), keys before values."""
        attention, mlp, dtype = layer.self_attn, layer.mlp, COMPUTE_DTYPE[precision]
        num_slots, num_kept, _, head_dim = cache_shape
        self.qkv = pack([attention.q_proj, attention.k_proj, attention.v_proj], precision, num_slots)
        self.out: RowLinear = pack([attention.o_proj], precision, num_slots)
        self.gate_up = pack([mlp.gate_proj, mlp.up_proj], precision, num_slots)
        self.down = pack([mlp.down_proj], precision, num_slots)
        self.act = mlp.act
        self.head_dim, self.num_kv_heads = head_dim, num_kept // 2
        self.num_heads = attention.q_proj.out_features // head_dim
        eps = layer.input_layernorm.eps
        self.attention_norm = StepNorm(layer.input_layernorm.weight.detach(), eps, dtype)
        self.mlp_norm = StepNorm(layer.post_attention_layernorm.weight.detach(), eps, dtype)
        gain_HE = attention.q_norm.weight.detach().expand(self.num_heads, -1)
        gain_KE = attention.k_norm.weight.detach().expand(self.num_kv_heads, -1)
        # In float32: the rotation comes next, and rounds once.
        self.head_norm = StepNorm(torch.cat((gain_HE, gain_KE)).unsqueeze(1), eps, torch.float32)
        self.cache = torch.zeros(cache_shape, dtype=dtype, device=attention.q_proj.weight.device)

    def __call__(self, x_ND: Tensor, rotary: tuple[Tensor, Tensor], window: Window) -> Tensor:
        """Run the layer; keys and values of these steps are added to the cache."""
        # Queries, keys and values stand side by side as heads, so that one operation serves all it applies to.
        num_rotated, num_all = self.num_heads + self.num_kv_heads, self.num_heads + 2 * self.num_kv_heads
        heads_BTHE = self.qkv(self.attention_norm(x_ND)).view(-1, window.steps, num_all, self.head_dim)
        heads_BHTE = heads_BTHE.transpose(1, 2)
        self._rotate(heads_BHTE.narrow(1, 0, num_rotated), rotary)
        x_ND = self.out(self._attend(heads_BHTE, window).reshape(x_ND.shape[0], -1)).add_(x_ND)
        gate, up = self.gate_up(self.mlp_norm(x_ND)).chunk(2, dim=-1)
        return self.down(self.act(gate).mul_(up)).add_(x_ND)

    def _rotate(self, heads_BHTE: Tensor, rotary: tuple[Tensor, Tensor]) -> None:
        """Norm queries and keys and turn them to their positions, in place."""
        cos, sin = rotary
        normed = self.head_norm(heads_BHTE)
        torch.addcmul(normed * cos, normed.roll(self.head_dim // 2, -1), sin, out=heads_BHTE)

    def _attend(self, heads_BHTE: Tensor, window: Window) -> Tensor:
        """What each query gathers, in the order of the query heads; their axis may be split in two."""
        q_BHTE, kv_BKTE = heads_BHTE.split_with_sizes((self.num_heads, 2 * self.num_kv_heads), dim=1)
        self._write(kv_BKTE, window)
        if window.causal:
            k_BKTE, v_BKTE = kv_BKTE.chunk(2, dim=1)
            attended = F.scaled_dot_product_attention(q_BHTE, k_BKTE, v_BKTE, is_causal=True, enable_gqa=True)
            return attended.transpose(1, 2)
        k_BKCE, v_BKCE = self.cache.narrow(2, 0, window.span).chunk(2, dim=1)
        # With one step per slot the queries that share a key head can stand as its steps, which is the plain
        # case for the kernel: at 16 heads and 200 positions in bf16 0.1 instead of 0.7 ms.
        q_BKGE = q_BHTE.view(q_BHTE.shape[0], self.num_kv_heads, -1, self.head_dim)
        return F.scaled_dot_product_attention(q_BKGE, k_BKCE, v_BKCE, attn_mask=window.mask)

    def _write(self, kv_BKTE: Tensor, window: Window) -> None:
        if window.slots is not None:
            self.cache[window.slots, :, : window.steps] = kv_BKTE
        elif window.positions_B is None:
            self.cache.narrow(2, window.start, window.steps).copy_(kv_BKTE)
        elif self.cache.shape[0] == 1:
            self.cache.index_copy_(2, window.positions_B, kv_BKTE)
        else:
            rows_B = torch.arange(self.cache.shape[0], device=self.cache.device)
            self.cache[rows_B, :, window.positions_B] = kv_BKTE[:, :, 0]


class StepTransformer:
    """All layers and the final norm, over one cache of `num_slots` sequences of up to `cache_length` steps."""

    def __init__(
        self,
        source: Transformer,
        config: TransformerConfig,
        *,
        precision: Precision,
        num_slots: int,
        cache_length: int,
        consume: bool = False,
    ) -> None:
        """Pack the layers of `source`; with `consume` each is emptied once packed, so nothing is held twice."""
        self.dtype = COMPUTE_DTYPE[precision]
        self.num_slots, self.cache_length = num_slots, cache_length
        cache_shape = (num_slots, 2 * config.num_key_value_heads, cache_length, config.head_dim)
        self.layers: list[StepLayer] = []
        for layer in source.layers:
            assert isinstance(layer, DecoderLayer)
            self.layers.append(StepLayer(layer, cache_shape, precision))
            if consume:
                layer.to(device="meta")
        self.norm = StepNorm(source.norm.weight.detach(), source.norm.eps, self.dtype)
        positions = torch.arange(cache_length, device=source.norm.weight.device)
        self.cos, self.sin = rotary_angles(positions, config.head_dim, config.rope_theta)
        # Rotation is x * cos + (x with its halves swapped) * sin, the first half of sin being negative.
        self.sin[:, : config.head_dim // 2].neg_()

    def prefill(self, x_TD: Tensor, slot: int) -> Tensor:
        """Write a whole sequence into a slot, from position 0; hidden states (T, D) of all its steps."""
        steps = x_TD.shape[0]
        window = Window(steps=steps, span=steps, slots=slice(slot, slot + 1), causal=True)
        return self._run(x_TD, (self.cos[:steps], self.sin[:steps]), window)

    def step(self, x_BD: Tensor, positions_B: Tensor, span: int) -> Tensor:
        """Append one step to every slot.

        Args:
            x_BD: input embedding per slot.
            positions_B: how many steps each slot already holds.
            span: one more than the largest of them, or anything larger up to the cache length.

        Returns:
            Hidden states (B, D).
        """
        rotary = (self.cos[positions_B, None, None], self.sin[positions_B, None, None])
        seen = torch.arange(span, device=positions_B.device) <= positions_B.unsqueeze(1)
        window = Window(steps=1, span=span, positions_B=positions_B, mask=seen.view(-1, 1, 1, span))
        return self._run(x_BD, rotary, window)

    def step_together(self, x_BTD: Tensor, start: int) -> Tensor:
        """Append T steps to every slot, all slots being at position `start`; hidden states (B, T, D).

        Positions are Python integers here, so a loop of such calls is a fixed graph. T > 1 only at `start` 0.
        """
        steps = x_BTD.shape[1]
        assert start == 0 or steps == 1
        rotary = (self.cos[start : start + steps], self.sin[start : start + steps])
        window = Window(steps=steps, span=start + steps, start=start, causal=start == 0)
        return self._run(x_BTD.flatten(0, 1), rotary, window).view_as(x_BTD)

    def _run(self, x_ND: Tensor, rotary: tuple[Tensor, Tensor], window: Window) -> Tensor:
        for layer in self.layers:
            x_ND = layer(x_ND, rotary, window)
        return self.norm(x_ND)
