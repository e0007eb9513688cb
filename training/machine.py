"""The machine or cluster to train on."""

from __future__ import annotations

import os

from pydantic import BaseModel, ConfigDict


class Machine(BaseModel):
    """This machine, or the Ray cluster to use instead of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_cpus: int
    """That workers may use at once."""
    num_gpus: int
    address: str | None = None
    """Of an existing cluster, whose size is known only once it is joined: the counts are this machine's own."""

    @classmethod
    def here(cls, num_cpus: int | None = None) -> Machine:
        """This machine, or the cluster that RAY_ADDRESS names.

        Args:
            num_cpus: how many workers may share this machine's processors; as many as it has when None.
        """
        import torch  # noqa: PLC0415 - takes seconds, which a process that only reads a stored machine need not spend

        address = os.environ.get("RAY_ADDRESS") or None
        # macOS has no such call.
        own_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(
            num_cpus=num_cpus or own_cpus,
            num_gpus=torch.cuda.device_count(),
            address=None if address == "local" else address,
        )
