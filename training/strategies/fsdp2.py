"""FSDP2: weights, gradients and optimizer state are sharded; a layer's weights are gathered when it runs.

Shards are float32, and gathered copies have the dtype of the arithmetic. Each layer of talker and code predictor is one
unit; embeddings, projections and heads belong to the root's unit, which stays gathered from forward to backward.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from training.errors import PreflightError
from training.job import FineTuneJob
from training.loss import SpeechLoss
from training.strategies.ddp import wrap_ddp
from training.strategies.torch_learner import TorchLearner
from training.workers import GROUP_TIMEOUT, Workers, agreed_group_size, local_world_size

MakeMesh = Callable[[Workers], DeviceMesh]


def wrap_fsdp2(
    speech_loss: SpeechLoss,
    job: FineTuneJob,
    workers: Workers,
    dtype: torch.dtype,
    *,
    make_mesh: MakeMesh,
    reshard: bool = True,
) -> TorchLearner:
    """Shard a model over a mesh.

    Args:
        speech_loss: on the CPU, float32.
        job: the recipe.
        workers: the group of workers.
        dtype: of the arithmetic; gradients are summed in float32.
        make_mesh: arranges the workers.
        reshard: drop a layer's gathered weights after its forward pass and gather them again for the backward pass.

    Raises:
        PreflightError: a worker alone would not offload what it was asked to.
    """
    if workers.size == 1:
        # What is on the CPU already needs no offload.
        if workers.device.type != "cpu" and (problem := job.offload_problem(1)) is not None:
            raise PreflightError(problem)
        return wrap_ddp(speech_loss, job, workers, dtype)
    mesh = make_mesh(workers)
    offload = job.offload == "cpu" and workers.device.type != "cpu"
    shard = partial(
        fully_shard,
        mesh=mesh,
        mp_policy=MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32),
        offload_policy=CPUOffloadPolicy() if offload else OffloadPolicy(),
    )
    talker = speech_loss.talker
    if not talker.model.text_embedding.weight.requires_grad:
        # A third of a gigabyte that only the first operation reads; in the root's unit it would stay gathered.
        shard(talker.model.text_embedding, reshard_after_forward=True)
    for layer in (*talker.model.layers, *talker.code_predictor.model.layers):
        shard(layer, reshard_after_forward=reshard)
    shard(speech_loss, reshard_after_forward=False)
    return TorchLearner(speech_loss, job, workers.device, num_workers=workers.size)


def flat_mesh(workers: Workers) -> DeviceMesh:
    """Every worker holds a different shard."""
    return init_device_mesh(workers.device.type, (workers.size,), mesh_dim_names=("shard",))


def hybrid_mesh(workers: Workers) -> DeviceMesh:
    """Groups that shard the model among themselves and replicate each other: gathering stays within a machine."""
    group = agreed_group_size(workers, local_world_size(workers.size))
    shape = (workers.size // group, group)
    mesh = init_device_mesh(workers.device.type, shape, mesh_dim_names=("replicate", "shard"))
    if workers.device.type in ("cpu", "cuda"):
        for part in mesh.get_all_groups():
            # Groups within the group of all are made with NCCL's ten minutes, whatever that one has.
            dist.distributed_c10d._set_pg_timeout(GROUP_TIMEOUT, part)
    return mesh
