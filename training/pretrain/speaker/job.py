"""The recipe of the speaker encoder's own training."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from training.pretrain.run.stage_job import StageJob


class SpeakerJob(StageJob):
    """The recipe of one run, which cannot be resumed with another one."""

    trained: ClassVar[str] = "speaker encoder"

    num_steps: PositiveInt = 4_000

    num_utterances: int = Field(default=12_000, ge=4)
    """Altered once, and used several times; some are held out."""
    recorded_share: float = Field(default=0.15, ge=0, le=1)
    """Of the utterances; by the corpus's person, where it has one."""
    foreign_share: float = Field(default=0.4, ge=0, le=1)
    """Of the other utterances; by engines' voices of other languages, where the corpus has them."""
    timbre_share: float = Field(default=0.6, ge=0, le=1)
    resampled_share: float = Field(default=0.6, ge=0, le=1)
    channel_share: float = Field(default=0.5, ge=0, le=1)
    """How many are altered in which way; some in all of them, some in none."""

    ridge: PositiveFloat = 1.0
    """Of the regression from the verifier's directions to embeddings, for directions of length 1."""
    min_gain: NonNegativeFloat = 400.0
    """Of that map, whose gains would be 2,400 where the corpus's speakers differ most, and 20 where they hardly do.
    Two people are some .7 apart."""
    batch_size: PositiveInt = 32

    muon_learning_rate: PositiveFloat = 0.03
    peak_learning_rate: PositiveFloat = 3e-3
    min_lr_ratio: NonNegativeFloat = 0.01
    adam_betas: tuple[float, float] = (0.9, 0.98)
    max_gradient_norm: PositiveFloat = 1.0

    validate_every: PositiveInt = 500
    log_every: PositiveInt = 20
