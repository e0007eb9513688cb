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
        # Loads torch, which takes seconds, and a process that only reads a stored machine need not spend them.
        from training.model.device import num_gpus  # noqa: PLC0415 - see above

        address = os.environ.get("RAY_ADDRESS") or None
        # macOS has no such call.
        own_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(
            num_cpus=num_cpus or own_cpus,
            num_gpus=num_gpus(),
            address=None if address == "local" else address,
        )
