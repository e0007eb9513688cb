# Shape letters: B batch, T step, D width, H query head, K key/value head, E head width.
"""The Qwen3 decoder layer: RMS norm, rotary grouped-query attention with normed queries and keys, SwiGLU.

Parameter names are those of the public checkpoints. These modules are the whole-sequence form, for
training and for scoring; `training/model/generation/step_transformer.py` runs the same weights one step at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.model.activations import build_activation
from training.model.config import TransformerConfig
from training.model.network.grouped_attention import grouped_attention
from training.model.network.packing import Packing


class RMSNorm(nn.Module):
    """Scale to unit root mean square in float32, then by a learnt gain (Zhang & Sennrich 2019)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis; the dtype of `x` is kept."""
        # Not F.rms_norm: the gain multiplies after rounding to x.dtype, as in the reference, so that bf16 results are
        # bit-equal to it.
        x_float = x.float()
        normed = x_float * torch.rsqrt(x_float.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * normed.to(x.dtype)


def rotary_angles(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines that rotate a head to its position (Su et al. 2021), in float32.

    Args:
        positions: integer positions of any shape (...).
        head_dim: head width E, even.
        theta: base wavelength.

    Returns:
        Two tensors (..., E); both halves of the last axis are equal.
    """
    channels = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device)
    frequencies = 1.0 / (theta ** (channels / head_dim))
    angles = positions.float().unsqueeze(-1) * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x_BHTE: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary angles; `cos` and `sin` broadcast against `x_BHTE` and have its dtype."""
    first, second = x_BHTE.chunk(2, dim=-1)
    return x_BHTE * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Grouped-query causal self-attention with RMS-normed queries and keys."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, head_dim, bias = config.hidden_size, config.head_dim, config.attention_bias
        self.head_dim = head_dim
        self.q_proj = nn.Linear(width, config.num_attention_heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(width, config.num_key_value_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(width, config.num_key_value_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(config.num_attention_heads * head_dim, width, bias=bias)
        self.q_norm = RMSNorm(head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(head_dim, config.rms_norm_eps)

    def forward(self, x_BTD: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | Packing | None) -> Tensor:
        """Attend causally, causally within each clip of a `Packing`, or where a boolean `mask` is true."""
        batch, steps, _ = x_BTD.shape
        cos, sin = rotary
        heads = (batch, steps, -1, self.head_dim)
        q_BHTE = rotate(self.q_norm(self.q_proj(x_BTD).view(heads)).transpose(1, 2), cos, sin)
        k_BKTE = rotate(self.k_norm(self.k_proj(x_BTD).view(heads)).transpose(1, 2), cos, sin)
        v_BKTE = self.v_proj(x_BTD).view(heads).transpose(1, 2)
        if isinstance(mask, Packing):
            attended = mask.attend(q_BHTE, k_BKTE, v_BKTE)
        else:
            attended = grouped_attention(q_BHTE, k_BKTE, v_BKTE, mask=mask, is_causal=mask is None)
        out: Tensor = self.o_proj(attended.transpose(1, 2).reshape(batch, steps, -1))
        return out


class SwiGLU(nn.Module):
    """Gated feed-forward block (Shazeer 2020)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act = build_activation(config.hidden_act)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    """Pre-norm attention and feed-forward with residuals; the unit that FSDP2 shards."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = SwiGLU(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x_BTD: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | Packing | None) -> Tensor:
        """One layer over a whole sequence, (B, T, D) to (B, T, D)."""
        x_BTD = x_BTD + self.self_attn(self.input_layernorm(x_BTD), rotary, mask)
        out: Tensor = x_BTD + self.mlp(self.post_attention_layernorm(x_BTD))
        return out


class Transformer(nn.Module):
    """A stack of decoder layers and the final norm; talker and code predictor add their embeddings."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.head_dim = config.head_dim
        self.rope_theta = config.rope_theta

    def forward(
        self, x_BTD: Tensor, positions_BT: Tensor | None = None, mask: Tensor | Packing | None = None
    ) -> Tensor:
        """Run all layers.

        Args:
            x_BTD: input embeddings.
            positions_BT: rotary positions; 0..T-1 when None. Packed sequences restart at 0.
            mask: boolean, broadcastable to (B, 1, T, T), true where a step may attend; or the clips of a packed row,
                for causal attention within each clip; causal when None.

        Returns:
            Hidden states (B, T, D) after the final norm.
        """
        if positions_BT is None:
            positions_BT = torch.arange(x_BTD.shape[1], device=x_BTD.device).unsqueeze(0)
        cos, sin = rotary_angles(positions_BT, self.head_dim, self.rope_theta)
        rotary = (cos.unsqueeze(1).to(x_BTD.dtype), sin.unsqueeze(1).to(x_BTD.dtype))
        for layer in self.layers:
            x_BTD = layer(x_BTD, rotary, mask)
        out: Tensor = self.norm(x_BTD)
        return out
