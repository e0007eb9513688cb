"""The learner behind ddp and the fsdp2 strategies: AdamW over plain or sharded tensors, checkpoints through DCP."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from training.data.example import TrainingBatch
from training.job import FineTuneJob
from training.loss import SpeechLosses
from training.strategies.learner import Learner, StateBytes

# Frozen weights are those of the base model, which the run refers to.
_TRAINED_ONLY = StateDictOptions(ignore_frozen_params=True, strict=False)
_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class TorchLearner(Learner):
    """A module that PyTorch replicates or shards."""

    def __init__(
        self,
        module: nn.Module,
        job: FineTuneJob,
        device: torch.device,
        *,
        num_workers: int,
        autocast: torch.dtype | None = None,
    ) -> None:
        """Make the optimizer of a wrapped `SpeechLoss`.

        Args:
            module: the wrapped module; weights in float32.
            job: the recipe.
            device: of the batches.
            num_workers: number of workers that average their gradients.
            autocast: dtype of the arithmetic, unless the wrapper sets it.
        """
        self.device = device
        self._module, self._num_workers, self._autocast = module, num_workers, autocast
        self._optimizer = make_optimizer(module, job)
        # Saving runs in parallel with training, and needs a process group of its own.
        self._saving_group = dist.new_group(backend="gloo")

    @override
    def losses(self, batch: TrainingBatch, generator: torch.Generator, *, is_last: bool) -> SpeechLosses:
        if isinstance(self._module, DistributedDataParallel):
            self._module.require_backward_grad_sync = is_last
        computing = torch.autocast(self.device.type, self._autocast) if self._autocast else nullcontext()
        with computing:
            out: SpeechLosses = self._module(batch, generator)
        return out

    @override
    def backward(self, objective: Tensor) -> None:
        # Workers' gradients are averaged, but the parts of the objective must be summed.
        (objective * self._num_workers).backward()

    @override
    def step(self, learning_rate: float, max_gradient_norm: float) -> float:
        norm = torch.nn.utils.clip_grad_norm_(self._trained(), max_gradient_norm)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return float(norm)

    @override
    def state_bytes(self) -> StateBytes:
        gradients = (p.grad for p in self._module.parameters() if p.grad is not None)
        state = self._optimizer.state.values()
        moments = (value for of_one in state for value in of_one.values() if isinstance(value, Tensor) and value.dim())
        return StateBytes(
            parameters=_local_bytes(self._module.parameters()),
            gradients=_local_bytes(gradients),
            optimizer=_local_bytes(moments),
        )

    @override
    def weights(self) -> dict[str, Tensor]:
        state = get_model_state_dict(self._module, options=_WHOLE)
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        return {name.removeprefix("talker."): tensor.float() for name, tensor in tensors.items()}

    @override
    def start_save(self, folder: Path) -> Future[Any]:
        # Copied in memory before this returns, so that the next step may change the weights.
        pending = async_save(self._state(), checkpoint_id=folder, process_group=self._saving_group)
        assert isinstance(pending, Future)
        return pending

    @override
    def finish_save(self, pending: Future[Any]) -> None:
        pending.result()

    @override
    def load(self, folder: Path, *, may_write: bool) -> None:
        # `may_write` is not needed: any number of workers reads the files as they are.
        state = self._state()
        load(state, checkpoint_id=folder, process_group=self._saving_group)
        set_state_dict(
            self._module,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=_TRAINED_ONLY,
        )

    def _trained(self) -> list[nn.Parameter]:
        return [p for p in self._module.parameters() if p.requires_grad]

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._module, self._optimizer, options=_TRAINED_ONLY)
        return {"model": model, "optimizer": optimizer}


def make_optimizer(module: nn.Module, job: FineTuneJob) -> torch.optim.AdamW:
    """AdamW over the trained parameters, without weight decay on gains and biases."""
    groups = parameter_groups(module, job)
    on_cpu = all(parameter.device.type == "cpu" for group in groups for parameter in group["params"])
    # One pass over the weights instead of a dozen, which take eight times as long. CPUs are not given it by default.
    return torch.optim.AdamW(groups, lr=job.learning_rate, betas=job.adam_betas, fused=True if on_cpu else None)


def parameter_groups(module: nn.Module, job: FineTuneJob) -> list[dict[str, Any]]:
    """Parameters with weight decay, and parameters without; an adapter has none of the latter."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": job.weight_decay},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _local_bytes(tensors: Iterable[Tensor]) -> int:
    local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    return sum(tensor.numel() * tensor.element_size() for tensor in local)
