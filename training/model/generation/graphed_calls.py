"""Fixed sequences of operations, captured once and replayed: CUDA graphs, or on processors without Python.

One frame is about 1,600 small operations. Launched one by one from Python they leave a GPU idle most of the time, and
on a processor Python takes as long as a small network's arithmetic. Capturing takes tens of milliseconds, during which
nobody is served, so it is done when an engine starts, or while it has nothing to do, and never for a take that is being
spoken.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from training.model.generation.traced_calls import CannotTrace, TraceRecorder

_logger = logging.getLogger(__name__)

KV_LENGTH_STEP = 256
"""Attention lengths are rounded up to this, so that a take needs a handful of graphs instead of one per frame.

Rounding also keeps results independent of the other takes: measured on CPU, float32 results change with the number of
masked positions behind a take at multiples of 64 and 128, and do not at multiples of 256; bfloat16 ones never do."""


class Graph(Protocol):
    """A captured sequence."""

    def replay(self) -> None:
        """Run its kernels again, on the same memory."""


class Recorder(Protocol):
    """Captures functions whose tensors stay where they are.

    Attributes:
        needs_equal_work: a replay costs the host next to nothing, so that it is worth computing for free slots too.
    """

    needs_equal_work: bool

    def capture(self, call: Callable[[], None], memory: Sequence[Tensor]) -> Graph:
        """Capture what `call` runs, which has been called once before.

        `memory` are all tensors that it writes, or that change between two calls of it.
        """

    def num_bytes(self) -> int:
        """Device memory that its graphs hold by now."""


class CudaRecorder:
    """Captures CUDA graphs that share one pool of memory; they must be replayed one after the other."""

    needs_equal_work = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None  # an opaque handle
        self._reserved_before: int | None = None

    def capture(self, call: Callable[[], None], memory: Sequence[Tensor]) -> Graph:
        """Capture on a stream of its own, as CUDA requires; which memory it is makes no difference."""
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
        missed: how often each key was run without a graph; `capture` removes it.
    """

    def __init__(self, recorder: Recorder | None) -> None:
        """Without a recorder every function is just called."""
        self.recorder = recorder
        self._graphs: dict[Hashable, Graph] = {}
        self._refused: set[Hashable] = set()
        self.missed: Counter[Hashable] = Counter()

    @classmethod
    def on(cls, device: torch.device) -> GraphedCalls:
        """For a device: CUDA's graphs, those without Python on processors, none elsewhere."""
        if device.type == "cuda":
            return cls(CudaRecorder(device))
        return cls(TraceRecorder() if device.type == "cpu" and TraceRecorder.is_available() else None)

    @property
    def enabled(self) -> bool:
        """Whether graphs can be captured at all."""
        return self.recorder is not None

    @property
    def needs_equal_work(self) -> bool:
        """See `Recorder`; false without one."""
        return self.recorder is not None and self.recorder.needs_equal_work

    @property
    def num_bytes(self) -> int:
        """Device memory that its graphs hold."""
        return 0 if self.recorder is None else self.recorder.num_bytes()

    def has(self, key: Hashable) -> bool:
        """Whether a graph was captured."""
        return key in self._graphs

    def lacks(self, key: Hashable) -> bool:
        """Whether a graph was not captured, and could be."""
        return self.enabled and key not in self._graphs and key not in self._refused

    def run(self, key: Hashable | None, call: Callable[[], None]) -> None:
        """Replay the graph captured under a key, or run `call`; a key of None never has one."""
        if self.recorder is None or key is None:
            call()
            return
        graph = self._graphs.get(key)
        if graph is None:
            self.note_missed(key)
            call()
            return
        graph.replay()

    def note_missed(self, key: Hashable) -> None:
        """Remember that a graph would have been of use, if it can be had."""
        if self.enabled and key not in self._refused:
            self.missed[key] += 1

    def capture(self, key: Hashable, call: Callable[[], None], memory: Sequence[Tensor]) -> None:
        """Capture a graph, unless there is one; `call` is run once for that. For `memory` see `Recorder.capture`."""
        self.missed.pop(key, None)
        if self.recorder is None or key in self._graphs or key in self._refused:
            return
        # Libraries allocate and choose their kernels at the first call, which cannot be captured.
        call()
        try:
            self._graphs[key] = self.recorder.capture(call, memory)
        except CannotTrace as error:
            # Not worse than before, and it would not be better another time.
            _logger.debug("%s is called from Python: %s", key, error)
            self._refused.add(key)


def round_up(length: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-length // step) * step
