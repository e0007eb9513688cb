# Shape letters: B slot, T step, N slot x step, D width, H query head, K key head, G H per K, E head width, C cache.
"""A transformer stack for decoding: packed weights, a preallocated key/value cache, one step at a time.

Built from a `Transformer`, and computes the same. Each slot of the cache holds one sequence from position 0 on. Slots
have different lengths, and positions beyond a slot's length are masked, so a sequence never attends to padding or to
the slot's former occupant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

import torch
import torch.nn.functional as F
from torch import Tensor

from training.model.config import TransformerConfig
from training.model.generation.adapter import AdaptedRows, LowRankChange
from training.model.network.grouped_attention import grouped_attention
from training.model.network.layers import DecoderLayer, Transformer, rotary_angles
from training.model.network.packed_linear import (
    COMPUTE_DTYPE,
    RowLinear,
    is_batch_invariant,
    num_packed_bytes,
    pack,
)
from training.model.precision import Precision

_SERIAL_ELEMENTS = 32_768
"""PyTorch divides element-wise work beyond this among its threads, wherever that is in a row."""


@dataclass(frozen=True, kw_only=True)
class CacheSlotView:
    """One layer's part of a call: where its new keys and values are written, and which ones its queries attend to.

    Attributes:
        write: puts keys and values, (B, 2K, T, E), into the layer's cache.
        keys, values: views of the cache, (B, K, kv_length, E); None for the start of a sequence, where the steps
            attend causally to each other only.
    """

    write: Callable[[Tensor], object]
    keys: Tensor | None = None
    values: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class AttentionCall:
    """One call of the stack: its steps per row, their rotary angles, and each layer's view of the cache.

    Attributes:
        steps: steps per row.
        cos, sin: rotary angles, broadcastable to (B, T, heads, E), or to (B, heads, E) for a next step.
        views: one per layer.
        mask: boolean, broadcastable to (B, 1, 1, kv_length), true where a row may attend; None to attend to all.
    """

    steps: int
    cos: Tensor
    sin: Tensor
    views: tuple[CacheSlotView, ...]
    mask: Tensor | None = None


class StepNorm:
    """RMS norm of the last axis, computed in the fastest way on its device.

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
        # `forward`, not the module: a module call first looks for hooks, which takes as long as activating a row.
        self.act = mlp.act.forward
        self.head_dim, self.num_kv_heads = head_dim, num_kept // 2
        self.num_heads = attention.q_proj.out_features // head_dim
        eps = layer.input_layernorm.eps
        self.attention_norm = StepNorm(layer.input_layernorm.weight.detach(), eps, dtype)
        self.mlp_norm = StepNorm(layer.post_attention_layernorm.weight.detach(), eps, dtype)
        gain_HE = attention.q_norm.weight.detach().expand(self.num_heads, -1)
        gain_KE = attention.k_norm.weight.detach().expand(self.num_kv_heads, -1)
        # In float32: the rotation comes next, and rounds once.
        self.head_norm = StepNorm(torch.cat((gain_HE, gain_KE)), eps, torch.float32)
        self.cache = torch.zeros(cache_shape, dtype=dtype, device=attention.q_proj.weight.device)

    def __call__(self, x_ND: Tensor, call: AttentionCall, view: CacheSlotView, adapted: AdaptedRows = ()) -> Tensor:
        """Run the layer; keys and values of these steps are added to the cache. `adapted` rows have adapters."""
        if adapted:
            return self._run_adapted(x_ND, call, view, adapted)
        qkv_NX = self.qkv(self.attention_norm(x_ND))
        attend = self._attend_first if view.keys is None else self._attend_next
        attended = attend(qkv_NX, call, view)
        x_ND = self.out(attended.reshape(x_ND.shape[0], -1)).add_(x_ND)
        gate, up = self.gate_up(self.mlp_norm(x_ND)).chunk(2, dim=-1)
        return self.down(self.act(gate).mul_(up)).add_(x_ND)

    def _run_adapted(self, x_ND: Tensor, call: AttentionCall, view: CacheSlotView, adapted: AdaptedRows) -> Tensor:
        """The same with adapters beside each product; rows without one come out as they do there, to the last bit."""
        normed_ND = self.attention_norm(x_ND)
        qkv_NX = _changed(self.qkv(normed_ND), normed_ND, [(rows, layer.qkv) for rows, layer in adapted])
        attend = self._attend_first if view.keys is None else self._attend_next
        attended_NX = attend(qkv_NX, call, view).reshape(x_ND.shape[0], -1)
        out_ND = _changed(self.out(attended_NX), attended_NX, [(rows, layer.out) for rows, layer in adapted])
        x_ND = out_ND.add_(x_ND)
        normed_ND = self.mlp_norm(x_ND)
        both_NX = _changed(self.gate_up(normed_ND), normed_ND, [(rows, layer.gate_up) for rows, layer in adapted])
        gate_NX, up_NX = both_NX.chunk(2, dim=-1)
        active_NX = self.act(gate_NX).mul_(up_NX)
        return _changed(self.down(active_NX), active_NX, [(rows, layer.down) for rows, layer in adapted]).add_(x_ND)

    def _attend_next(self, qkv_BX: Tensor, call: AttentionCall, view: CacheSlotView) -> Tensor:
        """Attention output of one step per slot, in the order of the query heads."""
        heads_BHE = qkv_BX.view(qkv_BX.shape[0], -1, self.head_dim)
        self._rotate(heads_BHE.narrow(1, 0, self.num_heads + self.num_kv_heads), call)
        q_BHE, kv_BKE = heads_BHE.split_with_sizes((self.num_heads, 2 * self.num_kv_heads), dim=1)
        view.write(kv_BKE.unsqueeze(2))
        # The queries that share a key head are passed as its steps, the case the kernel is fastest at: at 16 heads
        # and 200 positions in bf16 0.1 instead of 0.7 ms.
        assert view.keys is not None
        assert view.values is not None
        q_BKGE = q_BHE.view(q_BHE.shape[0], self.num_kv_heads, -1, self.head_dim)
        return F.scaled_dot_product_attention(q_BKGE, view.keys, view.values, attn_mask=call.mask)

    def _attend_first(self, qkv_NX: Tensor, call: AttentionCall, view: CacheSlotView) -> Tensor:
        """Attention output of the first steps of a sequence, (B, T, H, E)."""
        heads_BTHE = qkv_NX.view(-1, call.steps, qkv_NX.shape[1] // self.head_dim, self.head_dim)
        self._rotate(heads_BTHE.narrow(2, 0, self.num_heads + self.num_kv_heads), call)
        q_BHTE, kv_BKTE = heads_BTHE.transpose(1, 2).split_with_sizes((self.num_heads, 2 * self.num_kv_heads), dim=1)
        view.write(kv_BKTE)
        k_BKTE, v_BKTE = kv_BKTE.chunk(2, dim=1)
        attended = grouped_attention(q_BHTE, k_BKTE, v_BKTE, is_causal=True)
        return attended.transpose(1, 2)

    def _rotate(self, heads: Tensor, call: AttentionCall) -> None:
        """Norm queries and keys and rotate them to their positions, in place."""
        normed = self.head_norm(heads)
        torch.addcmul(normed * call.cos, normed.roll(self.head_dim // 2, -1), call.sin, out=heads)


def _changed(out_NO: Tensor, x_NI: Tensor, changes: Sequence[tuple[slice, LowRankChange | None]]) -> Tensor:
    """The result of a product, changed in place where rows have an adapter."""
    for rows, change in changes:
        if change is not None:
            change.add_to(out_NO[rows], x_NI[rows])
    return out_NO


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
        """Pack the layers of `source`; with `consume` each is emptied once packed, so that no weight is held twice."""
        self.dtype = COMPUTE_DTYPE[precision]
        self.num_slots, self.cache_length = num_slots, cache_length
        cache_shape = (num_slots, 2 * config.num_key_value_heads, cache_length, config.head_dim)
        self.layers: list[StepLayer] = []
        self.num_weight_bytes = 0
        for layer in source.layers:
            assert isinstance(layer, DecoderLayer)
            self.layers.append(StepLayer(layer, cache_shape, precision))
            num_weights = sum(parameter.numel() for parameter in layer.parameters())
            self.num_weight_bytes += num_packed_bytes(self.layers[-1].qkv, num_weights, precision)
            if consume:
                layer.to(device="meta")
        self.norm = StepNorm(source.norm.weight.detach(), source.norm.eps, self.dtype)
        positions = torch.arange(cache_length, device=source.norm.weight.device)
        self.cos, self.sin = rotary_angles(positions, config.head_dim, config.rope_theta)
        # Rotation is x * cos + (x with its halves swapped) * sin, the first half of sin being negative.
        self.sin[:, : config.head_dim // 2].neg_()
        self._kept_calls: dict[tuple[int, int], AttentionCall] = {}
        linears = [linear for layer in self.layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        widest = max(
            config.intermediate_size, (config.num_attention_heads + config.num_key_value_heads) * config.head_dim
        )
        self.is_batch_invariant = is_batch_invariant(linears) and num_slots * widest <= _SERIAL_ELEMENTS
        """Whether a call for the first slots alone gives each of them the result of a call for all, to the last bit."""

    @property
    def caches(self) -> list[Tensor]:
        """Keys and values of each layer."""
        return [layer.cache for layer in self.layers]

    def prefill(self, x_TD: Tensor, slot: int, adapted: Sequence[AdaptedRows] = ()) -> Tensor:
        """Write a whole sequence into a slot, from position 0; hidden states (T, D) of all its steps.

        `adapted` has the rows with adapters for each layer, here and in the other calls; empty if there are none.
        """
        return self._run(x_TD, self._first_call(x_TD.shape[0], slice(slot, slot + 1)), adapted)

    def step(self, x_BD: Tensor, positions_B: Tensor, kv_length: int, adapted: Sequence[AdaptedRows] = ()) -> Tensor:
        """Append one step to every slot, or to the first ones if there are fewer rows than slots.

        Args:
            x_BD: input embedding per slot.
            positions_B: how many steps each of these slots already holds.
            kv_length: one more than the largest of them, or anything larger up to the cache length.
            adapted: see `prefill`.

        Returns:
            Hidden states (B, D).
        """
        num_computed = x_BD.shape[0]
        rows_B = torch.arange(num_computed, device=positions_B.device)

        def view(layer: StepLayer) -> CacheSlotView:
            """Each slot at its own position in the layer's cache."""
            cache = layer.cache.narrow(0, 0, num_computed)

            def write(kv_BKTE: Tensor) -> None:
                """Write keys and values (B, 2K, 1, E) to those positions."""
                if num_computed == 1:
                    cache.index_copy_(2, positions_B, kv_BKTE)
                else:
                    cache[rows_B, :, positions_B] = kv_BKTE[:, :, 0]

            keys, values = cache.narrow(2, 0, kv_length).chunk(2, dim=1)
            return CacheSlotView(write=write, keys=keys, values=values)

        seen = torch.arange(kv_length, device=positions_B.device) <= positions_B.unsqueeze(1)
        call = AttentionCall(
            steps=1,
            cos=self.cos[positions_B, None],
            sin=self.sin[positions_B, None],
            views=tuple(view(layer) for layer in self.layers),
            mask=seen.view(-1, 1, 1, kv_length),
        )
        return self._run(x_BD, call, adapted)

    def step_together(
        self, x_BD: Tensor, position: int, adapted: Sequence[AdaptedRows] = (), *, keep: bool = False
    ) -> Tensor:
        """Append one step to the first slots, one per row, all of them at `position`; hidden states (B, D).

        Positions are Python integers here, so a loop of such calls is a fixed graph, and nothing is masked. `keep`
        caches the prepared `AttentionCall`, for stacks with few positions.
        """
        num_computed = x_BD.shape[0]
        call = self._kept_calls.get((num_computed, position)) if keep else None
        if call is None:
            call = self._call_at(position, num_computed)
            if keep:
                self._kept_calls[num_computed, position] = call
        return self._run(x_BD, call, adapted)

    def begin_together(self, x_BTD: Tensor, adapted: Sequence[AdaptedRows] = ()) -> Tensor:
        """Restart the first slots, one per row, with T > 1 steps; hidden states (B, T, D)."""
        call = self._first_call(x_BTD.shape[1], slice(x_BTD.shape[0]))
        return self._run(x_BTD.flatten(0, 1), call, adapted).view_as(x_BTD)

    def _call_at(self, position: int, num_computed: int) -> AttentionCall:
        def view(layer: StepLayer) -> CacheSlotView:
            """All slots at the same position in the layer's cache."""
            cache = layer.cache.narrow(0, 0, num_computed)
            keys, values = cache.narrow(2, 0, position + 1).chunk(2, dim=1)
            return CacheSlotView(write=cache.narrow(2, position, 1).copy_, keys=keys, values=values)

        return AttentionCall(
            steps=1,
            cos=self.cos[position],
            sin=self.sin[position],
            views=tuple(view(layer) for layer in self.layers),
        )

    def _first_call(self, steps: int, slots: slice) -> AttentionCall:
        return AttentionCall(
            steps=steps,
            cos=self.cos[:steps, None],
            sin=self.sin[:steps, None],
            views=tuple(CacheSlotView(write=layer.cache[slots, :, :steps].copy_) for layer in self.layers),
        )

    def _run(self, x_ND: Tensor, call: AttentionCall, adapted: Sequence[AdaptedRows]) -> Tensor:
        for layer, view, rows in zip(self.layers, call.views, adapted or repeat((), len(self.layers)), strict=True):
            x_ND = layer(x_ND, call, view, rows)
        return self.norm(x_ND)
