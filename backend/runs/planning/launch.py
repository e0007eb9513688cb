"""How a run is to be placed, repeated after faults, and judged; saved beside its job."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from backend.runs.errors import RunError
from training.machine import Machine


class LaunchOptions(BaseModel):
    """What a person may want to have otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_workers: PositiveInt | None = None
    """Fewer than the job's workers makes the run elastic: it takes what the cluster has, and grows when it can."""
    max_failures: NonNegativeInt = 3
    """Workers lost before the run gives up; each time it goes on from the last checkpoint."""
    judge: bool = True
    num_held_out: NonNegativeInt = 4
    num_standard: NonNegativeInt = 4
    name_voice: bool = True
    """Keep the best checkpoint as a voice when the run is done."""


class LaunchPlan(LaunchOptions):
    """What a supervisor needs beside the job."""

    run_id: str
    machine: Machine
    max_workers: PositiveInt
    use_gpu: bool = False

    @property
    def smallest_world_size(self) -> int:
        """It does not train with fewer."""
        return self.min_workers or self.max_workers

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
