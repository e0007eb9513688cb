"""A stand-in for CUDA's recorder on a processor: the operations of one call, run again on the same memory."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = ("_local_scalar_dense", "nonzero", "is_nonzero")
"""Operations whose result Python or a shape depends on, which a graph cannot hold."""


class Tape(TorchDispatchMode):
    """Notes every operation with the tensors it read and made; `replay` puts new results where the first ones are.

    Like a captured graph it knows no Python: lengths, slots and branches are those of the first call.
    """

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert not any(word in str(function) for word in READS), f"a graph cannot hold {function}"
        made = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, made))
        return made

    def replay(self):
        for function, args, kwargs, made in self.operations:
            again = function(*args, **kwargs)
            for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                # Views, and results written in place, are in the first call's memory already.
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class TapeRecorder:
    """Records tapes, which count as a mebibyte each."""

    needs_equal_work = True

    def __init__(self):
        self.num_captured = 0

    def capture(self, call, memory):
        tape = Tape()
        with tape:
            call()
        self.num_captured += 1
        return tape

    def num_bytes(self):
        return self.num_captured * 2**20
