"""What a job trains on: its data, read and divided into steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from training.data.batching import BatchPlan, BatchShape
from training.data.code_rows import CodeRow
from training.data.training_set import TrainingSet, join_speakers, read_training_set
from training.errors import PreflightError
from training.job import FineTuneJob
from training.model.checkpoint.reading import read_config
from training.model.config import ModelConfig
from training.model.prompt.text_tokenizer import TextTokenizer

Rows = Sequence[Iterable[CodeRow]]
"""All rows of each speaker's dataset, in the order of `FineTuneJob.speakers`."""


def plan_data(job: FineTuneJob, rows: Rows | None = None) -> tuple[ModelConfig, TrainingSet, BatchPlan]:
    """Read what a job trains on and plan its steps. Raises EncoreError, see `read_data`."""
    training_set = read_data(job, rows)
    return training_set.config, training_set, plan_batches(job, training_set)


def read_data(job: FineTuneJob, rows: Rows | None = None) -> TrainingSet:
    """Read what a job trains on; the same for every preset.

    Raises:
        TrainingDataError, CheckpointError, ConfigError: data or base model are missing or do not fit each other.
        PreflightError: a dataset was changed since the run was planned.
    """
    config, text_tokenizer = read_config(job.base_model), TextTokenizer.from_folder(job.base_model)
    parts = []
    for number, speaker in enumerate(job.speakers):
        card, part = read_training_set(
            speaker.dataset,
            config,
            text_tokenizer,
            max_tokens=job.max_clip_tokens,
            speaker=job.speaker,
            rows=None if rows is None else rows[number],
        )
        if card.digest != speaker.dataset_digest:
            raise PreflightError(
                f"The dataset {card.name} was changed since this run was planned. "
                "Start a new run with the data as it is."
            )
        parts.append(part)
    return parts[0] if len(parts) == 1 else join_speakers(parts)


def plan_batches(job: FineTuneJob, training_set: TrainingSet) -> BatchPlan:
    """Which clips go into which step of a job."""
    shape = BatchShape(
        micro_batches=job.micro_batches,
        micro_batch_tokens=job.micro_batch_tokens,
        max_tokens=min(job.max_clip_tokens, training_set.config.talker.max_position_embeddings),
        in_context_ratio=job.in_context_ratio,
        batching=job.batching,
        misheard_share=job.misheard_share,
    )
    return BatchPlan(training_set, shape, seed=job.seed, num_epochs=job.num_epochs, num_steps=job.num_steps)
