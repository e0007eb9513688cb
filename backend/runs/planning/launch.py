"""How a run is placed, repeated after faults, and evaluated; saved next to its job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError, model_validator

from backend.runs.errors import RunError, RunInvalid
from training.former_names import with_current_names
from training.job import FineTuneJob
from training.machine import Machine

FORMER_NAMES = {"judge": "evaluate"}
"""As version 0.1 spells them."""


class LaunchOptions(BaseModel):
    """What the user may set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_workers: PositiveInt | None = None
    """Fewer than the job's workers makes the run elastic: it takes what the cluster has, and grows when it can."""
    max_failures: NonNegativeInt = 3
    """Workers lost before the run gives up; each time it goes on from the last checkpoint."""
    evaluate: bool = True
    """Evaluate the checkpoints by how they sound."""
    num_held_out: NonNegativeInt = 4
    num_standard: NonNegativeInt = 4
    name_voice: bool = True
    """Keep the best checkpoint as a voice when the run is done."""

    @model_validator(mode="before")
    @classmethod
    def _accept_former_names(cls, raw: Any) -> Any:  # Any: whatever is to be validated
        return with_current_names(raw, FORMER_NAMES)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Check options that came from a form or a command line. Raises RunInvalid."""
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{first['loc'][0]} cannot be {first['input']!r}: {first['msg']}. Correct it."
            raise RunInvalid(reason) from error


class LaunchPlan(LaunchOptions):
    """What a supervisor needs in addition to the job."""

    run_id: str
    machine: Machine
    max_workers: PositiveInt
    use_gpu: bool = False

    @property
    def smallest_world_size(self) -> int:
        """It does not train with fewer."""
        return self.min_workers or self.max_workers

    def worker_problems(self, job: FineTuneJob) -> list[str]:
        """Why the job could not run with so few or with changing numbers of workers."""
        if self.smallest_world_size > self.max_workers:
            return [f"min_workers is {self.min_workers}, more than the {self.max_workers} workers. Lower it."]
        if self.is_elastic and job.strategy == "fsdp2-hybrid":
            return ["fsdp2-hybrid needs an even number of workers. Leave min_workers out, or use fsdp2."]
        if self.is_elastic and job.offload == "nvme":
            return ["Offload to nvme needs a fixed number of workers. Leave min_workers out, or offload to cpu."]
        if (problem := job.offload_problem(self.smallest_world_size)) is not None:
            return [problem]
        return []

    @property
    def is_elastic(self) -> bool:
        """Whether the number of workers may change while it runs."""
        return self.smallest_world_size < self.max_workers

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a plan. Raises RunError."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise RunError(f"{path} cannot be read, so the run cannot go on. Start a new one.") from error
