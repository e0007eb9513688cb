"""What the jobs of all training stages share."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt


class StageJob(BaseModel):
    """The recipe of one run. Resuming it with another one is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: NonNegativeInt = 1
    num_steps: PositiveInt = 5_000

    muon_learning_rate: PositiveFloat
    """Of matrices and kernels, whose steps are orthogonalised."""
    peak_learning_rate: PositiveFloat
    """Of everything else."""
    final_share: NonNegativeFloat
    """What is left of the learning rates at the end."""
    num_warmup_steps: PositiveInt = 100
    adam_betas: tuple[float, float]
    weight_decay: NonNegativeFloat = 0.01
    max_gradient_norm: PositiveFloat

    validate_every: PositiveInt
    log_every: PositiveInt

    def learning_rate_share(self, step: int) -> float:
        """Of the peak learning rates, at a step: linear warm-up, then half a cosine down to `final_share`."""
        if step < self.num_warmup_steps:
            return (step + 1) / self.num_warmup_steps
        progress = (step - self.num_warmup_steps) / max(1, self.num_steps - self.num_warmup_steps)
        return self.final_share + (1 - self.final_share) * (1 + math.cos(math.pi * min(1.0, progress))) / 2
