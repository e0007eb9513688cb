# Shape letters: B batch, T step, H query head, K key head, E head width.
"""Attention in which several query heads share a key head, on any device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

NATIVE = frozenset({"cpu", "cuda", "meta"})
"""Devices whose kernels share a key head. PyTorch documents `enable_gqa` for CUDA alone; the CPU's kernels are tested
here, and `meta` has only shapes."""


def grouped_attention(
    q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor, *, mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Scaled dot-product attention (B, H, T, E); on devices without the kernel, keys and values are repeated."""
    if v_BKTE.device.type == "cpu" and v_BKTE.dtype == torch.bfloat16 and v_BKTE.requires_grad:
        # The CPU's backward pass in bfloat16 takes five times as long as in float32 where sequences are as short as the
        # code predictor's. Autocast would go back to bfloat16.
        with torch.autocast("cpu", enabled=False):
            attended = grouped_attention(q_BHTE.float(), k_BKTE.float(), v_BKTE.float(), mask=mask, is_causal=is_causal)
        return attended.to(v_BKTE.dtype)
    # Of Python: where calls are traced, sizes are tensors.
    is_grouped = bool(q_BHTE.shape[1] != k_BKTE.shape[1])
    if is_grouped and q_BHTE.device.type not in NATIVE:
        repeats = q_BHTE.shape[1] // k_BKTE.shape[1]
        k_BKTE, v_BKTE = (heads.repeat_interleave(repeats, dim=1) for heads in (k_BKTE, v_BKTE))
        is_grouped = False
    return F.scaled_dot_product_attention(
        q_BHTE, k_BKTE, v_BKTE, attn_mask=mask, is_causal=is_causal, enable_gqa=is_grouped
    )
