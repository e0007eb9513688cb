# Shape letters: B batch row (1 where all rows agree), T step, K key step, D width, H attention head.
"""The transformers on both sides of the codes: causal, rotary, with layer scale.

The encoder's attends to all earlier steps. Its configuration has a `sliding_window`, which transformers 5 applies; but
the public tokenizer was published with transformers 4.57.3, which ignores the field, and so were its recorded codes.
Fine-tunes are trained on these codes, so the field is ignored here too. The decoder does use its window:
`sliding_window` steps, including the current one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.model.codec.stream_state import CarryingLayer, DecoderState, StreamState
from training.model.config import CodecDecoderConfig, CodecEncoderConfig
from training.model.network.grouped_attention import grouped_attention
from training.model.network.layers import rotary_angles, rotate

Rotation = tuple[Tensor, Tensor]


def _rotation(positions_BT: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> Rotation:
    """Cosines and sines (B, 1, T, head_dim)."""
    cosine_BTD, sine_BTD = rotary_angles(positions_BT, head_dim, theta)
    return cosine_BTD.unsqueeze(1).to(dtype), sine_BTD.unsqueeze(1).to(dtype)


def window_mask(query_positions_BT: Tensor, key_positions_BK: Tensor, window: int) -> Tensor:
    """Which keys a step attends to, bool (B, 1, T, K): its own and the `window` - 1 before it, from position 0 on."""
    distance_BTK = query_positions_BT.unsqueeze(-1) - key_positions_BK.unsqueeze(-2)
    seen_BTK = (distance_BTK >= 0) & (distance_BTK < window) & (key_positions_BK >= 0).unsqueeze(-2)
    return seen_BTK.unsqueeze(1)


class Attention(CarryingLayer):
    """Grouped-query attention with rotary positions; a stream carries the last `num_past` keys and values."""

    def __init__(self, config: CodecEncoderConfig | CodecDecoderConfig, *, num_past: int) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.num_heads = config.num_attention_heads
        self.num_key_value_heads = config.num_key_value_heads
        self.num_past = num_past
        width, bias = config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(width, self.num_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(width, self.num_key_value_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(width, self.num_key_value_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(self.num_heads * self.head_dim, width, bias=bias)

    def initial_carry(self, batch_size: int) -> Tensor:
        """Zeros (B, 2, H, num_past, D): rotated keys, then values."""
        shape = (batch_size, 2, self.num_key_value_heads, self.num_past, self.head_dim)
        return self.k_proj.weight.new_zeros(shape)

    def forward(
        self, hidden_BTD: Tensor, rotation: Rotation, mask_BHTK: Tensor | None, state: StreamState | None
    ) -> Tensor:
        """Attend under `mask_BHTK`, or to all earlier steps when it is None."""
        query_BHTD = rotate(self._split(self.q_proj(hidden_BTD)), *rotation)
        key_BHKD = rotate(self._split(self.k_proj(hidden_BTD)), *rotation)
        value_BHKD = self._split(self.v_proj(hidden_BTD))
        if state is not None and self.num_past > 0:
            carry = state.carry(self)
            key_BHKD = torch.cat((carry[:, 0], key_BHKD), dim=2)
            value_BHKD = torch.cat((carry[:, 1], value_BHKD), dim=2)
            carry[:, 0] = key_BHKD[:, :, -self.num_past :]
            carry[:, 1] = value_BHKD[:, :, -self.num_past :]
        attended_BHTD = grouped_attention(query_BHTD, key_BHKD, value_BHKD, mask=mask_BHTK, is_causal=mask_BHTK is None)
        merged_BTD: Tensor = self.o_proj(attended_BHTD.transpose(1, 2).flatten(2))
        return merged_BTD

    def _split(self, projected_BTD: Tensor) -> Tensor:
        heads_BHTD: Tensor = projected_BTD.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return heads_BHTD


class PlainMlp(nn.Module):
    """The encoder's feed-forward layer."""

    def __init__(self, config: CodecEncoderConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        """Apply to every step."""
        updated_BTD: Tensor = self.fc2(F.gelu(self.fc1(hidden_BTD)))
        return updated_BTD


class GatedMlp(nn.Module):
    """The decoder's feed-forward layer (SwiGLU)."""

    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        """Apply to every step."""
        updated_BTD: Tensor = self.down_proj(F.silu(self.gate_proj(hidden_BTD)) * self.up_proj(hidden_BTD))
        return updated_BTD


class LayerScale(nn.Module):
    """One learnt factor per channel on a residual branch (Touvron et al. 2021)."""

    def __init__(self, width: int, initial_scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), initial_scale))

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        """Scale every step alike."""
        return hidden_BTD * self.scale


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each normed before and scaled after."""

    def __init__(
        self,
        config: CodecEncoderConfig | CodecDecoderConfig,
        *,
        mlp: nn.Module,
        build_norm: Callable[[], nn.Module],
        num_past: int,
    ) -> None:
        super().__init__()
        self.self_attn = Attention(config, num_past=num_past)
        self.mlp = mlp
        self.input_layernorm = build_norm()
        self.post_attention_layernorm = build_norm()
        self.self_attn_layer_scale = LayerScale(config.hidden_size, config.layer_scale_initial_scale)
        self.mlp_layer_scale = LayerScale(config.hidden_size, config.layer_scale_initial_scale)

    def forward(
        self, hidden_BTD: Tensor, rotation: Rotation, mask_BHTK: Tensor | None = None, state: StreamState | None = None
    ) -> Tensor:
        """Update every step; see `Attention.forward` for the mask."""
        attended_BTD: Tensor = self.self_attn(self.input_layernorm(hidden_BTD), rotation, mask_BHTK, state)
        hidden_BTD = hidden_BTD + self.self_attn_layer_scale(attended_BTD)
        updated_BTD: Tensor = self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(hidden_BTD)))
        return hidden_BTD + updated_BTD


class EncoderTransformer(nn.Module):
    """The encoder's layers: full causal attention, layer norm before each branch, none at the end."""

    def __init__(self, config: CodecEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(
            TransformerLayer(
                config,
                mlp=PlainMlp(config),
                build_norm=lambda: nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
                num_past=0,
            )
            for _ in range(config.num_hidden_layers)
        )

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        """Update every step; memory grows with T, not with its square."""
        positions_BT = torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device).unsqueeze(0)
        rotation = _rotation(positions_BT, self.config.head_dim, self.config.rope_theta, hidden_BTD.dtype)
        for layer in self.layers:
            hidden_BTD = layer(hidden_BTD, rotation)
        return hidden_BTD


class DecoderTransformer(nn.Module):
    """The decoder's layers: windowed attention, RMS norms, projections in and out."""

    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.num_past = config.sliding_window - 1
        self.layers = nn.ModuleList(
            TransformerLayer(
                config,
                mlp=GatedMlp(config),
                build_norm=lambda: nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps),
                num_past=self.num_past,
            )
            for _ in range(config.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.input_proj = nn.Linear(config.latent_dim, config.hidden_size)
        self.output_proj = nn.Linear(config.hidden_size, config.latent_dim)

    def forward(self, latents_BTD: Tensor, state: DecoderState | None = None) -> Tensor:
        """Update a whole signal, or with `state` the next frames of each row, whose positions it advances."""
        steps_T = torch.arange(latents_BTD.shape[1], device=latents_BTD.device)
        if state is None:
            query_positions_BT = key_positions_BK = steps_T.unsqueeze(0)
        else:
            query_positions_BT = state.positions_B.unsqueeze(1) + steps_T
            past_K = torch.arange(-self.num_past, 0, device=latents_BTD.device)
            key_positions_BK = state.positions_B.unsqueeze(1) + torch.cat((past_K, steps_T))
            state.positions_B += latents_BTD.shape[1]
        mask_BHTK = window_mask(query_positions_BT, key_positions_BK, self.config.sliding_window)
        hidden_BTD = self.input_proj(latents_BTD)
        rotation = _rotation(query_positions_BT, self.config.head_dim, self.config.rope_theta, hidden_BTD.dtype)
        for layer in self.layers:
            hidden_BTD = layer(hidden_BTD, rotation, mask_BHTK, state)
        projected_BTD: Tensor = self.output_proj(self.norm(hidden_BTD))
        return projected_BTD
