"""Networks laid out on the meta device, without memory and without the weights that they would begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _NothingDrawn(TorchFunctionMode):
    """Skips the normal distribution: on the meta device PyTorch loads its compiler for it, which takes a second."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # Any: whatever the function of PyTorch returns
        named = kwargs or {}
        if func in (nn.init.normal_, torch.Tensor.normal_):
            return args[0] if args else named["tensor"]
        return func(*args, **named)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Within the block, networks take no memory; their weights have to be loaded."""
    with torch.device("meta"), _NothingDrawn():
        yield
