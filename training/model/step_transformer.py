# Shape letters: B slot, T step, D width, H query head, K key/value head, E head width, C cache length.
"""A transformer stack for decoding: packed weights, a preallocated key/value cache, one step at a time.

Built from a `Transformer` and equal to it. Each slot of the cache holds one sequence from position 0 on;
slots are at different lengths, and what lies beyond a slot's length is never attended to, so neither
padding nor a former occupant can be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.model.config import TransformerConfig
from training.model.layers import DecoderLayer, Transformer, rotary_angles, rotate
from training.model.linear import COMPUTE_DTYPE, Precision, RowLinear, pack


@dataclass(frozen=True, kw_only=True)
class Window:
    """Where a call writes to the cache and what it may look at.

    Attributes:
        slots: rows of the cache the batch axis maps to; None for all of them.
        start: first position written, the same for all rows; None to write one step per row at `positions_B`.
        positions_B: position per row, when `start` is None.
        span: cache positions that are looked at, 0..span-1.
        mask: boolean, broadcastable to (B, 1, T, span), true where a row may look; None for all of the span.
        causal: the call starts at position 0 and looks only at itself, each step at those before it.
    """

    span: int
    start: int | None = None
    positions_B: Tensor | None = None
    slots: slice | None = None
    mask: Tensor | None = None
    causal: bool = False


class StepLayer:
    """One decoder layer with fused, packed projections and its part of the cache."""

    def __init__(self, layer: DecoderLayer, cache_shape: tuple[int, int, int, int], precision: Precision) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        num_slots, num_kv_heads, _, head_dim = cache_shape
        dtype = COMPUTE_DTYPE[precision]
        self.qkv = pack([attention.q_proj, attention.k_proj, attention.v_proj], precision, num_slots)
        self.out: RowLinear = pack([attention.o_proj], precision, num_slots)
        self.gate_up = pack([mlp.gate_proj, mlp.up_proj], precision, num_slots)
        self.down = pack([mlp.down_proj], precision, num_slots)
        self.act = mlp.act
        self.heads = (attention.q_proj.out_features // head_dim, num_kv_heads, num_kv_heads)
        self.head_dim = head_dim
        self.eps = layer.input_layernorm.eps
        self.norms = [
            norm.weight.detach().to(dtype)
            for norm in (layer.input_layernorm, attention.q_norm, attention.k_norm, layer.post_attention_layernorm)
        ]
        device = attention.q_proj.weight.device
        self.keys = torch.zeros(cache_shape, dtype=dtype, device=device)
        self.values = torch.zeros(cache_shape, dtype=dtype, device=device)

    def __call__(self, x_BTD: Tensor, rotary: tuple[Tensor, Tensor], window: Window) -> Tensor:
        """Run the layer; keys and values of these steps are added to the cache."""
        batch, steps, width = x_BTD.shape
        attention_gain, query_gain, key_gain, mlp_gain = self.norms
        normed = F.rms_norm(x_BTD, (width,), attention_gain, self.eps)
        heads = self.qkv(normed).view(batch, steps, -1, self.head_dim)
        q, k, v_BTKE = heads.split(self.heads, dim=2)
        q_BHTE = rotate(F.rms_norm(q, (self.head_dim,), query_gain, self.eps).transpose(1, 2), *rotary)
        k_BKTE = rotate(F.rms_norm(k, (self.head_dim,), key_gain, self.eps).transpose(1, 2), *rotary)
        attended = self._attend(q_BHTE, k_BKTE, v_BTKE.transpose(1, 2), window)
        x_BTD = x_BTD + self.out(attended.transpose(1, 2).reshape(batch, steps, -1))
        gate, up = self.gate_up(F.rms_norm(x_BTD, (width,), mlp_gain, self.eps)).chunk(2, dim=-1)
        return x_BTD + self.down(self.act(gate) * up)

    def _attend(self, q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor, window: Window) -> Tensor:
        self._write(k_BKTE, v_BKTE, window)
        if window.causal:
            return F.scaled_dot_product_attention(q_BHTE, k_BKTE, v_BKTE, is_causal=True, enable_gqa=True)
        slots = slice(None) if window.slots is None else window.slots
        keys, values = self.keys[slots, :, : window.span], self.values[slots, :, : window.span]
        return F.scaled_dot_product_attention(q_BHTE, keys, values, attn_mask=window.mask, enable_gqa=True)

    def _write(self, k_BKTE: Tensor, v_BKTE: Tensor, window: Window) -> None:
        if window.positions_B is not None:
            rows = torch.arange(k_BKTE.shape[0], device=k_BKTE.device)
            self.keys[rows, :, window.positions_B] = k_BKTE[:, :, 0]
            self.values[rows, :, window.positions_B] = v_BKTE[:, :, 0]
            return
        assert window.start is not None
        slots = slice(None) if window.slots is None else window.slots
        steps = slice(window.start, window.start + k_BKTE.shape[2])
        self.keys[slots, :, steps] = k_BKTE
        self.values[slots, :, steps] = v_BKTE


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
        cache_shape = (num_slots, config.num_key_value_heads, cache_length, config.head_dim)
        self.layers: list[StepLayer] = []
        for layer in source.layers:
            assert isinstance(layer, DecoderLayer)
            self.layers.append(StepLayer(layer, cache_shape, precision))
            if consume:
                layer.to(device="meta")
        self.norm_gain, self.norm_eps = source.norm.weight.detach().to(self.dtype), source.norm.eps
        positions = torch.arange(cache_length, device=self.norm_gain.device)
        cos, sin = rotary_angles(positions, config.head_dim, config.rope_theta)
        self.cos, self.sin = cos.to(self.dtype), sin.to(self.dtype)

    def prefill(self, x_TD: Tensor, slot: int) -> Tensor:
        """Write a whole sequence into a slot, from position 0; hidden states (T, D) of all its steps."""
        steps = x_TD.shape[0]
        window = Window(span=steps, start=0, slots=slice(slot, slot + 1), causal=True)
        return self._run(x_TD.unsqueeze(0), (self.cos[:steps], self.sin[:steps]), window)[0]

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
        window = Window(span=span, positions_B=positions_B, mask=seen.view(-1, 1, 1, span))
        return self._run(x_BD.unsqueeze(1), rotary, window)[:, 0]

    def step_together(self, x_BTD: Tensor, start: int) -> Tensor:
        """Append T steps to every slot, all slots being at position `start`; hidden states (B, T, D).

        Positions are Python integers here, so a loop of such calls is a fixed graph. T > 1 only at `start` 0.
        """
        steps = x_BTD.shape[1]
        assert start == 0 or steps == 1
        rotary = (self.cos[start : start + steps], self.sin[start : start + steps])
        return self._run(x_BTD, rotary, Window(span=start + steps, start=start, causal=start == 0))

    def _run(self, x_BTD: Tensor, rotary: tuple[Tensor, Tensor], window: Window) -> Tensor:
        for layer in self.layers:
            x_BTD = layer(x_BTD, rotary, window)
        return F.rms_norm(x_BTD, (x_BTD.shape[-1],), self.norm_gain, self.norm_eps)
