"""The process group of workers on one machine: PyTorch's store, in which they find each other, listens on loopback.

Left to itself it listens on every address, whichever the workers are told to connect to, and asks nobody for a token.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import ray
import torch.distributed as dist
from ray.train.torch import TorchConfig

# What Ray Train calls in its own backend, which offers no choice of store.
from ray.train.torch.config import _set_torch_distributed_env_vars, _setup_torch_process_group, _TorchBackend

from backend.cluster.local_cluster import LOOPBACK


class LoopbackConfig(TorchConfig):
    """Ray Train's own configuration, for workers of which all are on this machine."""

    @property
    def backend_cls(self) -> type[LoopbackBackend]:
        """What Ray Train's controller sets the group up with."""
        return LoopbackBackend


class LoopbackBackend(_TorchBackend):
    """Ray Train's own backend, apart from where the store listens."""

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Make one group of the workers; called by Ray Train's controller whenever it has started them."""
        port = worker_group.execute_single(0, _free_port)
        worker_group.execute(_set_torch_distributed_env_vars)
        size = len(worker_group)
        common = {"size": size, "port": port, "backend": backend_config.backend, "seconds": backend_config.timeout_s}
        ray.get(
            [worker_group.execute_single_async(rank, join_group, world_rank=rank, **common) for rank in range(size)]
        )


def join_group(*, world_rank: int, size: int, port: int, backend: str, seconds: int) -> None:
    """Enter the group; the first worker serves the store.

    Args:
        world_rank: of this worker.
        size: number of workers.
        port: of the store.
        backend: PyTorch's name of what the workers talk through.
        seconds: how long an operation of the group may take.
    """
    os.environ.update(MASTER_ADDR=LOOPBACK, MASTER_PORT=str(port))
    # The group's own store finds that this process serves one at the port already, and shares it.
    store = _serve_store(port, seconds) if world_rank == 0 else None
    _setup_torch_process_group(backend, world_rank, size, f"tcp://{LOOPBACK}:{port}", seconds)
    del store


def _serve_store(port: int, seconds: float) -> object:
    """A store on loopback alone; it is served for as long as one of this process's stores of that port lives."""
    listener = socket.create_server((LOOPBACK, port), backlog=socket.SOMAXCONN)
    return dist.TCPStore(  # type: ignore[attr-defined]  # public, but not in __all__
        LOOPBACK,
        port,
        is_master=True,
        timeout=timedelta(seconds=seconds),
        wait_for_workers=False,
        multi_tenant=True,
        # It closes it.
        master_listen_fd=listener.detach(),
    )


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as free:
        return int(free.getsockname()[1])
