# Shape letters: B batch (1 here), T step, N clip, H query head, K key/value head, E head width, D talker width.
"""Several clips concatenated in a single batch row: no padding, and no attention between clips.

Attention is computed clip by clip, which equals attention over the whole row with a block-diagonal causal mask, without
computing what that mask would discard.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from training.model.network.grouped_attention import grouped_attention

# Minimum of flash attention; on older devices the clips are computed one by one.
_MIN_CAPABILITY = (8, 0)


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the clips of a packed row begin and end.

    Attributes:
        lengths: positions of each clip, in order; together the whole row.
        device: of the tensors derived from them.
    """

    lengths: tuple[int, ...]
    device: torch.device

    def to(self, device: torch.device | str) -> Packing:
        """The same for tensors on another device."""
        return Packing(self.lengths, torch.device(device))

    @cached_property
    def positions(self) -> Tensor:
        """Rotary positions (1, T): every clip begins at 0."""
        return torch.cat([torch.arange(length) for length in self.lengths]).unsqueeze(0).to(self.device)

    def spread(self, values_ND: Tensor) -> Tensor:
        """Repeat each clip's values (N, D) at all of its positions, (1, T, D)."""
        repeats = torch.tensor(self.lengths, device=values_ND.device)
        return values_ND.repeat_interleave(repeats, dim=0, output_size=sum(self.lengths)).unsqueeze(0)

    def attend(self, q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor) -> Tensor:
        """Causal grouped-query attention within each clip, (1, H, T, E)."""
        if _has_kernel(q_BHTE):
            return self._attend_at_once(q_BHTE, k_BKTE, v_BKTE)
        clips = zip(*(heads.split(self.lengths, dim=2) for heads in (q_BHTE, k_BKTE, v_BKTE)), strict=True)
        attended = [grouped_attention(q, k, v, is_causal=True) for q, k, v in clips]
        return torch.cat(attended, dim=2)

    def _attend_at_once(self, q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor) -> Tensor:
        """One kernel for all clips."""
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - registers operators, for GPUs only

        q, k, v = (heads.squeeze(0).transpose(0, 1).contiguous() for heads in (q_BHTE, k_BKTE, v_BKTE))
        longest = max(self.lengths)
        attended = varlen_attn(
            q, k, v, self._borders, self._borders, longest, longest, window_size=(-1, 0), enable_gqa=True
        )
        assert isinstance(attended, Tensor)
        return attended.transpose(0, 1).unsqueeze(0)

    @cached_property
    def _borders(self) -> Tensor:
        """Offsets at which clips begin, and the end of the last one, (N + 1,)."""
        ends = torch.tensor((0, *self.lengths), dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return ends.to(self.device)


def _has_kernel(tensor: Tensor) -> bool:
    return (
        tensor.is_cuda
        # ROCm's devices are CUDA's to PyTorch, which documents the kernel for the latter alone.
        and torch.version.hip is None
        and tensor.dtype in (torch.bfloat16, torch.float16)
        and torch.cuda.get_device_capability(tensor.device) >= _MIN_CAPABILITY
    )
