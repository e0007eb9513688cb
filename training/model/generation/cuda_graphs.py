"""Capture of fixed kernel sequences as CUDA graphs.

One frame is about 1,600 small kernels; launched one by one from Python they leave the GPU idle most of the
time. A captured graph launches them as one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

KV_LENGTH_STEP = 256
"""Attention lengths are rounded up to this, so that a take needs a handful of graphs instead of one per frame.

Rounding also keeps results independent of the other takes: measured on CPU, float32 results change with the number of
masked positions behind a take at multiples of 64 and 128, and do not at multiples of 256; bfloat16 ones never do."""


class GraphedCalls:
    """Runs functions of fixed tensors: captured and replayed on CUDA, called as they are elsewhere.

    A function may only read and write tensors that stay where they are, and must run the same kernels
    whenever its key is the same.
    """

    def __init__(self, device: torch.device) -> None:
        self.enabled = device.type == "cuda"
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None  # an opaque handle

    def run(self, key: Hashable | None, call: Callable[[], None]) -> None:
        """Run `call`, or replay the graph captured under the same key; without a key nothing is captured."""
        if not self.enabled or key is None:
            call()
            return
        graph = self._graphs.get(key)
        if graph is None:
            # The first call is done eagerly: it is the warm-up that capture needs, and capturing runs nothing.
            call()
            self._graphs[key] = self._capture(call)
            return
        graph.replay()

    def _capture(self, call: Callable[[], None]) -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            call()
        self._pool = graph.pool()
        return graph


def round_up(length: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-length // step) * step
