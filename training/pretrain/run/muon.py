"""Muon: orthogonalised momentum, for the matrices inside a network.

A gradient's matrix is dominated by a few directions; Muon steps along the nearest orthogonal matrix instead, found with
a few matrix products (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon). On two cores it needs a third to
a quarter of AdamW's steps. Embeddings, heads, scales and biases are left to AdamW.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor, nn

from training.model.device import supports_bf16

# Coefficients of Newton and Schulz's quintic iteration, steep at 0: singular values end between 0.7 and 1.2.
_QUINTIC = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum for parameters of two dimensions or more; kernels count as rows of filters."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 0.02,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        num_iterations: int = 5,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "num_iterations": num_iterations,
        }
        super().__init__(params, defaults)
        assert all(one.ndim >= 2 for group in self.param_groups for one in group["params"]), "Muon is for matrices"

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient."""
        assert closure is None, "Muon takes one gradient per step"
        for group in self.param_groups:
            # Equal shapes are iterated together: launching small products one by one costs more than computing them.
            by_shape: dict[tuple[int, int], list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    rows = parameter.shape[0]
                    by_shape.setdefault((rows, parameter.numel() // rows), []).append(parameter)
            for shape, parameters in by_shape.items():
                self._step_together(group, shape, parameters)
        return None

    def _step_together(self, group: dict[str, Any], shape: tuple[int, int], parameters: list[nn.Parameter]) -> None:
        momentum = group["momentum"]
        directions = []
        for parameter in parameters:
            assert parameter.grad is not None
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter, dtype=torch.float32)
            gradient = parameter.grad.float()
            average = state["momentum"].lerp_(gradient, 1 - momentum)
            directions.append(gradient.lerp(average, momentum).reshape(shape))
        # Larger steps for tall matrices, so that each output moves as much as a square matrix's would.
        size = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
        steps = orthogonalise(torch.stack(directions), group["num_iterations"])
        for parameter, step in zip(parameters, steps, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(step.view_as(parameter).to(parameter.dtype), alpha=-size)


def orthogonalise(matrices: Tensor, num_iterations: int) -> Tensor:
    """Bring all singular values of (batch, rows, columns) near 1.

    In bfloat16, which suffices, unless the processor only imitates it: that takes over ten times as long as float32.
    """
    a, b, c = _QUINTIC
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    iterate = matrices.mT if is_tall else matrices
    iterate = iterate.bfloat16() if supports_bf16(matrices.device) else iterate.float()
    iterate = iterate / iterate.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(num_iterations):
        gram: Tensor = iterate @ iterate.mT
        iterate = a * iterate + (b * gram + c * (gram @ gram)) @ iterate
    orthogonal: Tensor = iterate.mT if is_tall else iterate
    return orthogonal


def matrices_of(network: nn.Module, *, but: Iterable[str] = ()) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split what a network trains into Muon's share and AdamW's.

    AdamW gets embeddings, everything of fewer than two dimensions, and parameters whose name starts like one of `but`.
    """
    embeddings = {id(module.weight) for module in network.modules() if isinstance(module, nn.Embedding)}
    left_out = tuple(but)
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            is_matrix = parameter.ndim >= 2 and id(parameter) not in embeddings and not name.startswith(left_out)
            (matrices if is_matrix else rest).append(parameter)
    return matrices, rest
