"""The options that the jobs of all training stages share."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from training.former_names import with_current_names
from training.pretrain.errors import PretrainError

# As jobs of version 0.1 spell them.
_FORMER_NAMES = {
    "final_share": "min_lr_ratio",
    "explicit_language_share": "explicit_language_ratio",
    "in_context_share": "in_context_ratio",
}


class StageJob(BaseModel):
    """The recipe of one run, which cannot be resumed with another one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trained: ClassVar[str] = "network"
    """What the stage trains, in messages."""

    seed: NonNegativeInt = 1
    num_steps: PositiveInt = 5_000

    muon_learning_rate: PositiveFloat
    """Of matrices and kernels, whose steps are orthogonalised."""
    peak_learning_rate: PositiveFloat
    """Of all other parameters."""
    min_lr_ratio: NonNegativeFloat
    """Learning rates at the end, relative to the peak."""
    num_warmup_steps: PositiveInt = 100
    adam_betas: tuple[float, float]
    weight_decay: NonNegativeFloat = 0.01
    max_gradient_norm: PositiveFloat

    validate_every: PositiveInt
    log_every: PositiveInt

    @model_validator(mode="before")
    @classmethod
    def _accept_former_names(cls, raw: Any) -> Any:  # Any: pydantic's input, of any type
        return with_current_names(raw, _FORMER_NAMES)

    @classmethod
    def of_options(cls, **options: Any) -> Self:
        """The recipe with some options, as given on a command line.

        Raises:
            PretrainError: an option is out of range, such as the number of steps.
        """
        try:
            return cls(**options)
        except ValidationError as error:
            reasons = "; ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in error.errors())
            raise PretrainError(f"The {cls.trained} cannot be trained with these options: {reasons}.") from error

    def learning_rate_ratio(self, step: int) -> float:
        """Learning rate at a step, relative to the peak: linear warm-up, then half a cosine to `min_lr_ratio`."""
        if step < self.num_warmup_steps:
            return (step + 1) / self.num_warmup_steps
        progress = (step - self.num_warmup_steps) / max(1, self.num_steps - self.num_warmup_steps)
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * (1 + math.cos(math.pi * min(1.0, progress))) / 2
