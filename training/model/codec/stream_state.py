# Shape letters: B batch row, F codec frame.
"""The state of a causal network between two chunks of a stream."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor, nn
from typing_extensions import override


class CarryingLayer(nn.Module, ABC):
    """A causal layer that needs the end of one chunk to continue with the next."""

    @abstractmethod
    def initial_carry(self, batch_size: int) -> Tensor:
        """The carry at the start of a stream: zeros, batch row first, in the layer's dtype."""


class StreamState:
    """The carries of every layer of one network, for a batch of streams that may start at different times.

    The carries are allocated once and overwritten by each chunk, so a chunk costs no allocation that
    outlives it. A state belongs to the network it was made for and to the dtype and device it had then.
    """

    def __init__(self, network: nn.Module, batch_size: int) -> None:
        layers = [layer for layer in network.modules() if isinstance(layer, CarryingLayer)]
        self._carries: dict[CarryingLayer, Tensor] = {layer: layer.initial_carry(batch_size) for layer in layers}
        self.batch_size = batch_size

    @property
    def num_bytes(self) -> int:
        """Of all carries."""
        return sum(carry.nbytes for carry in self._carries.values())

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that it consists of."""
        return tuple(self._carries.values())

    def carry(self, layer: CarryingLayer) -> Tensor:
        """The buffer of `layer`, which the layer reads and overwrites in place."""
        return self._carries[layer]

    def clone(self) -> Self:
        """An independent copy, to continue one beginning in several ways."""
        cloned = copy.copy(self)
        cloned._carries = {layer: carry.clone() for layer, carry in self._carries.items()}
        return cloned

    def view(self, start: int, num_rows: int) -> Self:
        """Adjacent rows as a state that shares their memory."""
        seen = copy.copy(self)
        seen._carries = {layer: carry.narrow(0, start, num_rows) for layer, carry in self._carries.items()}
        seen.batch_size = num_rows
        return seen

    def select(self, rows: Tensor) -> Self:
        """A copy of some rows, in the order of `rows` (int64)."""
        selected = copy.copy(self)
        selected._carries = {layer: carry[rows] for layer, carry in self._carries.items()}
        selected.batch_size = len(rows)
        return selected

    def put(self, rows: Tensor, state: Self) -> None:
        """Overwrite some rows with those of another state of the same network; the inverse of `select`."""
        for layer, carry in self._carries.items():
            carry[rows] = state._carries[layer]


class DecoderState(StreamState):
    """The state of the codes-to-waveform stream, with the number of frames each row has decoded."""

    def __init__(self, network: nn.Module, batch_size: int) -> None:
        super().__init__(network, batch_size)
        device = next(network.parameters()).device
        self.positions_B = torch.zeros(batch_size, dtype=torch.long, device=device)

    @property
    @override
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.positions_B, *super().tensors)

    @override
    def clone(self) -> Self:
        cloned = super().clone()
        cloned.positions_B = self.positions_B.clone()
        return cloned

    @override
    def view(self, start: int, num_rows: int) -> Self:
        seen = super().view(start, num_rows)
        seen.positions_B = self.positions_B.narrow(0, start, num_rows)
        return seen

    @override
    def select(self, rows: Tensor) -> Self:
        selected = super().select(rows)
        selected.positions_B = self.positions_B[rows]
        return selected

    @override
    def put(self, rows: Tensor, state: Self) -> None:
        super().put(rows, state)
        self.positions_B[rows] = state.positions_B
