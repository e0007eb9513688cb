# Shape letters: B slot, T step, N slot x step, D width, H query head, K key head, G H per K, E head width, C cache.
"""A transformer stack for decoding: packed weights, a preallocated key/value cache, one step at a time.

Built from a `Transformer` and equal to it. Each slot of the cache holds one sequence from position 0 on;
slots are at different lengths, and what lies beyond a slot's length is never attended to, so neither
padding nor a former occupant can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.model.config import TransformerConfig
from training.model.network.layers import DecoderLayer, Transformer, rotary_angles
from training.model.network.linear import COMPUTE_DTYPE, Precision, RowLinear, is_batch_invariant, pack

_SERIAL_ELEMENTS = 32_768
"""PyTorch divides element-wise work beyond this among its threads, wherever that is in a row."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one layer's keys and values of a call go, and what its queries look at.

    Attributes:
        write: puts keys and values, (B, 2K, T, E), into the layer's cache.
        keys, values: views of the cache, (B, K, span, E); None where the call looks only at itself, each step at
            those before it, which is how sequences begin.
    """

    write: Callable[[Tensor], object]
    keys: Tensor | None = None
    values: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Window:
    """One call: its steps per row, their angles, and for each layer a place.

    Attributes:
        steps: steps per row.
        cos, sin: rotary angles, broadcastable to (B, T, heads, E), or to (B, heads, E) for a next step.
        places: one per layer.
        mask: boolean, broadcastable to (B, 1, 1, span), true where a row may look; None for all of the span.
    """

    steps: int
    cos: Tensor
    sin: Tensor
    places: tuple[Place, ...]
    mask: Tensor | None = None


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
        # Not the module itself: calling one looks for hooks first, which takes as long as the activation of a row.
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

    def __call__(self, x_ND: Tensor, window: Window, place: Place) -> Tensor:
        """Run the layer; keys and values of these steps are added to the cache."""
        qkv_NX = self.qkv(self.attention_norm(x_ND))
        attend = self._attend_first if place.keys is None else self._attend_next
        attended = attend(qkv_NX, window, place)
        x_ND = self.out(attended.reshape(x_ND.shape[0], -1)).add_(x_ND)
        gate, up = self.gate_up(self.mlp_norm(x_ND)).chunk(2, dim=-1)
        return self.down(self.act(gate).mul_(up)).add_(x_ND)

    def _attend_next(self, qkv_BX: Tensor, window: Window, place: Place) -> Tensor:
        """What the query of one step per slot gathers, in the order of the query heads."""
        heads_BHE = qkv_BX.view(qkv_BX.shape[0], -1, self.head_dim)
        self._rotate(heads_BHE.narrow(1, 0, self.num_heads + self.num_kv_heads), window)
        q_BHE, kv_BKE = heads_BHE.split_with_sizes((self.num_heads, 2 * self.num_kv_heads), dim=1)
        place.write(kv_BKE.unsqueeze(2))
        # The queries that share a key head stand as its steps, which is the plain case for the kernel: at 16 heads
        # and 200 positions in bf16 0.1 instead of 0.7 ms.
        assert place.keys is not None
        assert place.values is not None
        q_BKGE = q_BHE.view(q_BHE.shape[0], self.num_kv_heads, -1, self.head_dim)
        return F.scaled_dot_product_attention(q_BKGE, place.keys, place.values, attn_mask=window.mask)

    def _attend_first(self, qkv_NX: Tensor, window: Window, place: Place) -> Tensor:
        """What the queries of the first steps gather, (B, T, H, E)."""
        heads_BTHE = qkv_NX.view(-1, window.steps, qkv_NX.shape[1] // self.head_dim, self.head_dim)
        self._rotate(heads_BTHE.narrow(2, 0, self.num_heads + self.num_kv_heads), window)
        q_BHTE, kv_BKTE = heads_BTHE.transpose(1, 2).split_with_sizes((self.num_heads, 2 * self.num_kv_heads), dim=1)
        place.write(kv_BKTE)
        k_BKTE, v_BKTE = kv_BKTE.chunk(2, dim=1)
        attended = F.scaled_dot_product_attention(q_BHTE, k_BKTE, v_BKTE, is_causal=True, enable_gqa=True)
        return attended.transpose(1, 2)

    def _rotate(self, heads: Tensor, window: Window) -> None:
        """Norm queries and keys and turn them to their positions, in place."""
        normed = self.head_norm(heads)
        torch.addcmul(normed * window.cos, normed.roll(self.head_dim // 2, -1), window.sin, out=heads)


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
        self._kept_windows: dict[tuple[int, int], Window] = {}
        linears = [linear for layer in self.layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        widest = max(
            config.intermediate_size, (config.num_attention_heads + config.num_key_value_heads) * config.head_dim
        )
        self.is_batch_invariant = is_batch_invariant(linears) and num_slots * widest <= _SERIAL_ELEMENTS
        """Whether a call for the first slots only brings each of them what a call for all would, to the last bit."""

    def prefill(self, x_TD: Tensor, slot: int) -> Tensor:
        """Write a whole sequence into a slot, from position 0; hidden states (T, D) of all its steps."""
        return self._run(x_TD, self._first_window(x_TD.shape[0], slice(slot, slot + 1)))

    def step(self, x_BD: Tensor, positions_B: Tensor, span: int) -> Tensor:
        """Append one step to every slot, or to as many of the first as there are rows.

        Args:
            x_BD: input embedding per slot.
            positions_B: how many steps each of these slots already holds.
            span: one more than the largest of them, or anything larger up to the cache length.

        Returns:
            Hidden states (B, D).
        """
        num_rows = x_BD.shape[0]
        rows_B = torch.arange(num_rows, device=positions_B.device)

        def place(layer: StepLayer) -> Place:
            """Where this step goes in a layer's cache, each slot at its own position."""
            cache = layer.cache.narrow(0, 0, num_rows)

            def write(kv_BKTE: Tensor) -> None:
                """Put keys and values (B, 2K, 1, E) there."""
                if num_rows == 1:
                    cache.index_copy_(2, positions_B, kv_BKTE)
                else:
                    cache[rows_B, :, positions_B] = kv_BKTE[:, :, 0]

            keys, values = cache.narrow(2, 0, span).chunk(2, dim=1)
            return Place(write=write, keys=keys, values=values)

        seen = torch.arange(span, device=positions_B.device) <= positions_B.unsqueeze(1)
        window = Window(
            steps=1,
            cos=self.cos[positions_B, None],
            sin=self.sin[positions_B, None],
            places=tuple(place(layer) for layer in self.layers),
            mask=seen.view(-1, 1, 1, span),
        )
        return self._run(x_BD, window)

    def step_together(self, x_BD: Tensor, position: int, *, keep: bool = False) -> Tensor:
        """Append one step to the first slots, one per row, all of them being at `position`; hidden states (B, D).

        Positions are Python integers here, so a loop of such calls is a fixed graph, and nothing is masked. With
        `keep` what such a call looks at is prepared once and kept, for stacks with few positions.
        """
        num_rows = x_BD.shape[0]
        window = self._kept_windows.get((num_rows, position))
        if window is None:
            window = self._window_at(position, num_rows)
            if keep:
                self._kept_windows[num_rows, position] = window
        return self._run(x_BD, window)

    def begin_together(self, x_BTD: Tensor) -> Tensor:
        """Begin the first slots anew, one per row, with T > 1 steps; hidden states (B, T, D)."""
        window = self._first_window(x_BTD.shape[1], slice(x_BTD.shape[0]))
        return self._run(x_BTD.flatten(0, 1), window).view_as(x_BTD)

    def _window_at(self, position: int, num_rows: int) -> Window:
        def place(layer: StepLayer) -> Place:
            """Where this step goes in a layer's cache."""
            cache = layer.cache.narrow(0, 0, num_rows)
            keys, values = cache.narrow(2, 0, position + 1).chunk(2, dim=1)
            return Place(write=cache.narrow(2, position, 1).copy_, keys=keys, values=values)

        return Window(
            steps=1,
            cos=self.cos[position],
            sin=self.sin[position],
            places=tuple(place(layer) for layer in self.layers),
        )

    def _first_window(self, steps: int, slots: slice) -> Window:
        return Window(
            steps=steps,
            cos=self.cos[:steps, None],
            sin=self.sin[:steps, None],
            places=tuple(Place(write=layer.cache[slots, :, :steps].copy_) for layer in self.layers),
        )

    def _run(self, x_ND: Tensor, window: Window) -> Tensor:
        for layer, place in zip(self.layers, window.places, strict=True):
            x_ND = layer(x_ND, window, place)
        return self.norm(x_ND)
