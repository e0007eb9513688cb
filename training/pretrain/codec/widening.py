"""Begins a wider network with a narrower one's weights: it computes the same at first, and has room to learn more."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def widen(narrow: nn.Module, wide: nn.Module) -> None:
    """Copy the weights of `narrow` into `wide`, the same network with more channels (Net2Net, Chen et al. 2016).

    A kernel keeps the old one in its corner. What new channels hear stays as `wide` drew it, and what the old ones
    would hear of them is nought. Vectors go on with zeros. That leaves the output as it was where all that lies between
    the convolutions treats every channel by itself.

    Raises:
        ValueError: the networks are not the same but for their widths.
    """
    kept, own = narrow.state_dict(), wide.state_dict()
    if set(kept) != set(own):
        raise ValueError(f"One network lacks {', '.join(sorted(set(kept) ^ set(own))[:3])}.")
    transposed = {f"{name}.weight" for name, module in wide.named_modules() if isinstance(module, nn.ConvTranspose1d)}
    for name, old in kept.items():
        new = own[name]
        if old.ndim != new.ndim or any(was > now for was, now in zip(old.shape, new.shape, strict=True)):
            raise ValueError(f"{name} is {tuple(new.shape)}, which has no room for {tuple(old.shape)}.")
        if old.shape != new.shape:
            _silence(new, old, inputs_first=name in transposed)
        new[tuple(slice(length) for length in old.shape)].copy_(old)


def _silence(new: Tensor, old: Tensor, *, inputs_first: bool) -> None:
    """Nought wherever `new` would lead from channels that `old` has not to those it has."""
    if new.ndim == 1:
        new.zero_()
    elif inputs_first:
        new[old.shape[0] :, : old.shape[1]].zero_()
    else:
        new[: old.shape[0], old.shape[1] :].zero_()
