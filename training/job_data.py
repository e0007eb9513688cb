"""What a job trains on: its data, read and divided into steps."""

from __future__ import annotations

from collections.abc import Iterable

from training.data.batching import BatchPlan, BatchShape
from training.data.code_rows import CodeRow
from training.data.training_set import TrainingSet, read_training_set
from training.errors import PreflightError
from training.job import FineTuneJob
from training.model.checkpoint.reading import read_config
from training.model.config import ModelConfig
from training.model.prompt.text_tokenizer import TextTokenizer


def plan_data(job: FineTuneJob, rows: Iterable[CodeRow] | None = None) -> tuple[ModelConfig, TrainingSet, BatchPlan]:
    """Read what a job trains on and plan its steps. Raises EncoreError, see `read_data`."""
    training_set = read_data(job, rows)
    return training_set.config, training_set, plan_batches(job, training_set)


def read_data(job: FineTuneJob, rows: Iterable[CodeRow] | None = None) -> TrainingSet:
    """Read what a job trains on; the same for every preset.

    Raises:
        TrainingDataError, CheckpointError, ConfigError: data or base model are missing or do not fit each other.
        PreflightError: the dataset was changed since the run was planned.
    """
    config = read_config(job.base_model)
    card, training_set = read_training_set(
        job.dataset,
        config,
        TextTokenizer.from_folder(job.base_model),
        max_tokens=job.max_clip_tokens,
        speaker=job.speaker,
        rows=rows,
    )
    if card.digest != job.dataset_digest:
        raise PreflightError(
            f"The dataset {card.name} was changed since this run was planned. Start a new run with the data as it is."
        )
    return training_set


def plan_batches(job: FineTuneJob, training_set: TrainingSet) -> BatchPlan:
    """Which clips go into which step of a job."""
    shape = BatchShape(
        micro_batches=job.micro_batches,
        micro_batch_tokens=job.micro_batch_tokens,
        max_tokens=min(job.max_clip_tokens, training_set.config.talker.max_position_embeddings),
        in_context_ratio=job.in_context_ratio,
        batching=job.batching,
    )
    return BatchPlan(training_set, shape, seed=job.seed, num_epochs=job.num_epochs, num_steps=job.num_steps)
