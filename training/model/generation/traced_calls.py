"""Calls on a processor without Python: the operations of one call, traced by TorchScript and run by its interpreter.

They are the same kernels in the same order on the same memory, so that every bit is the same; nothing is fused. What is
saved is Python, and its lock: the frames of some takes and the sound of others are made at the same time.
TorchScript is deprecated in favour of compilers, which a listener's machine lacks; without it Python makes the calls.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from typing_extensions import override

_GRAPH_BYTES = 3 * 2**20
"""About what a graph of two thousand operations takes."""


class CannotTrace(Exception):
    """TorchScript lacks an operation, such as oneDNN's products of packed bfloat16 weights."""


class TraceRecorder:
    """Captures calls as TorchScript."""

    needs_equal_work = False

    def __init__(self) -> None:
        self._num_graphs = 0

    @staticmethod
    def is_available() -> bool:
        """Whether this PyTorch still has it."""
        return all(hasattr(torch.jit, name) for name in ("trace", "optimized_execution"))

    def capture(self, call: Callable[[], None], memory: Sequence[Tensor]) -> TracedCall:
        """Trace a call. Its other tensors, such as weights, become constants, whose memory it shares.

        Raises:
            CannotTrace: it runs an operation that TorchScript does not know.
        """
        with warnings.catch_warnings(), _as_traced():
            # That it is deprecated, and that shapes are constants: one graph is for one shape.
            warnings.simplefilter("ignore")
            try:
                traced = torch.jit.trace(_Call(call), tuple(memory), check_trace=False)
            except RuntimeError as error:
                raise CannotTrace(str(error).strip().partition("\n")[0]) from error
        self._num_graphs += 1
        return TracedCall(traced, memory)

    def num_bytes(self) -> int:
        """Estimated: the interpreter does not say."""
        return self._num_graphs * _GRAPH_BYTES


class TracedCall:
    """What was traced, with the memory it works on."""

    def __init__(self, traced: Callable[..., object], memory: Sequence[Tensor]) -> None:
        self._traced, self._memory = traced, tuple(memory)

    def replay(self) -> None:
        """Run it, as it was traced."""
        with _as_traced():
            self._traced(*self._memory)


def _as_traced() -> AbstractContextManager[None]:
    """Let this thread's calls do what was traced, without optimizing it, which takes long and rounds otherwise."""
    mode: AbstractContextManager[None] = torch.jit.optimized_execution(False)  # type: ignore[attr-defined]
    return mode


class _Call(nn.Module):
    """A call in the form that TorchScript takes. It knows tensors that are written by being passed them."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    @override
    def forward(self, *memory: Tensor) -> Tensor:
        """Call it; TorchScript wants a result."""
        self._call()
        return memory[0]
