"""Starts a wider network from a narrower one's weights, so that it computes the same at first."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def widen(narrow: nn.Module, wide: nn.Module) -> None:
    """Copy the weights of `narrow` into `wide`, the same network with more channels (Net2Net, Chen et al. 2016).

    The old kernel is copied to the corner of the new one. Weights into new channels stay as drawn; weights from new to
    old channels are zero, and vectors are padded with zeros. That preserves the output if everything between the
    convolutions treats each channel separately. Layers that
    only `wide` has stay as they are.

    Raises:
        ValueError: `narrow` is wider, or has layers that `wide` lacks.
    """
    kept, own = narrow.state_dict(), wide.state_dict()
    if missing := sorted(set(kept) - set(own)):
        raise ValueError(f"The larger network lacks {', '.join(missing[:3])}.")
    transposed = {f"{name}.weight" for name, module in wide.named_modules() if isinstance(module, nn.ConvTranspose1d)}
    for name, old in kept.items():
        new = own[name]
        if old.ndim != new.ndim or any(was > now for was, now in zip(old.shape, new.shape, strict=True)):
            raise ValueError(f"{name} is {tuple(new.shape)}, which has no room for {tuple(old.shape)}.")
        if old.shape != new.shape:
            _silence(new, old, inputs_first=name in transposed)
        new[tuple(slice(length) for length in old.shape)].copy_(old)


def _silence(new: Tensor, old: Tensor, *, inputs_first: bool) -> None:
    """Set the weights from new channels to old ones to zero."""
    if new.ndim == 1:
        new.zero_()
    elif inputs_first:
        new[old.shape[0] :, : old.shape[1]].zero_()
    else:
        new[: old.shape[0], old.shape[1] :].zero_()
