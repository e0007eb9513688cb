"""Fixed sequences of kernels, captured as CUDA graphs and replayed.

One frame is about 1,600 small kernels; launched one by one from Python they leave the GPU idle most of the
time. A captured graph launches them as one. Capturing takes tens of milliseconds, during which nobody is served, so
it is done when an engine starts, or while it has nothing to do, and never for a take that is being spoken.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

import torch

KV_LENGTH_STEP = 256
"""Attention lengths are rounded up to this, so that a take needs a handful of graphs instead of one per frame.

Rounding also keeps results independent of the other takes: measured on CPU, float32 results change with the number of
masked positions behind a take at multiples of 64 and 128, and do not at multiples of 256; bfloat16 ones never do."""


class Graph(Protocol):
    """A captured sequence."""

    def replay(self) -> None:
        """Run its kernels again, on the same memory."""


class Recorder(Protocol):
    """Captures functions whose tensors stay where they are."""

    def capture(self, call: Callable[[], None]) -> Graph:
        """Capture what `call` runs, which has been called once before."""

    def num_bytes(self) -> int:
        """Device memory that its graphs hold by now."""


class CudaRecorder:
    """Captures CUDA graphs that share one pool of memory; they must be replayed one after the other."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None  # an opaque handle
        self._reserved_before: int | None = None

    def capture(self, call: Callable[[], None]) -> Graph:
        """Capture on a stream of its own, as CUDA requires."""
        if self._reserved_before is None:
            self._reserved_before = torch.cuda.memory_reserved(self._device)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        # Of this thread alone: others may load voices meanwhile, which allocates.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            call()
        self._pool = graph.pool()
        captured: Graph = graph
        return captured

    def num_bytes(self) -> int:
        """By what the allocator has reserved since the first capture, warm-up included."""
        if self._reserved_before is None:
            return 0
        return max(0, torch.cuda.memory_reserved(self._device) - self._reserved_before)


class GraphedCalls:
    """Runs functions of fixed tensors: replayed where a graph of their key was captured, called as they are elsewhere.

    A function may only read and write tensors that stay where they are, and must run the same kernels
    whenever its key is the same.

    Attributes:
        missed: keys that were run without a graph, in order; `capture` removes them.
    """

    def __init__(self, recorder: Recorder | None) -> None:
        """Without a recorder every function is just called."""
        self._recorder = recorder
        self._graphs: dict[Hashable, Graph] = {}
        self.missed: dict[Hashable, None] = {}

    @classmethod
    def on(cls, device: torch.device) -> GraphedCalls:
        """For a device: with graphs on CUDA, without them elsewhere."""
        return cls(CudaRecorder(device) if device.type == "cuda" else None)

    @property
    def enabled(self) -> bool:
        """Whether graphs can be captured at all."""
        return self._recorder is not None

    @property
    def num_bytes(self) -> int:
        """Device memory that its graphs hold."""
        return 0 if self._recorder is None else self._recorder.num_bytes()

    def has(self, key: Hashable) -> bool:
        """Whether a graph was captured."""
        return key in self._graphs

    def run(self, key: Hashable | None, call: Callable[[], None]) -> None:
        """Replay the graph captured under a key, or run `call`; a key of None never has one."""
        if self._recorder is None or key is None:
            call()
            return
        graph = self._graphs.get(key)
        if graph is None:
            self.missed[key] = None
            call()
            return
        graph.replay()

    def capture(self, key: Hashable, call: Callable[[], None]) -> None:
        """Capture a graph, unless there is one; `call` is run once for that."""
        self.missed.pop(key, None)
        if self._recorder is None or key in self._graphs:
            return
        # Libraries allocate and choose their kernels at the first call, which cannot be captured.
        call()
        self._graphs[key] = self._recorder.capture(call)


def round_up(length: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-length // step) * step
