"""A fine-tune of seconds, and how it ends when nothing disturbs it."""

from __future__ import annotations

from pathlib import Path

from tests.faults.world import World
from tests.training.finetuning import make_job, make_rows, write_dataset
from tests.training.strategy_worker import RecordingContext
from training.job import FineTuneJob
from training.worker import run_worker

SAME_EVERYWHERE = ("talker_loss", "code_predictor_loss", "gradient_norm", "learning_rate")
NUM_STEPS = 8


def prepare(folder: Path) -> FineTuneJob:
    """Write the dataset of a job into a folder; returns the job."""
    write_dataset(folder / "dataset", make_rows((9, 16, 23, 30, 12), num_held_out=1))
    return job_in(folder)


def job_in(folder: Path) -> FineTuneJob:
    """The job of a folder."""
    options = {"num_steps": NUM_STEPS, "checkpoint_every": 1, "keep_checkpoints": 2, "export_at_end": False}
    return make_job(folder, **options)


def train(job: FineTuneJob) -> RecordingContext:
    """Train to the end; returns what was reported and told on the way."""
    context = RecordingContext(0, 1)
    assert run_worker(job, context).is_complete, "it is not complete"
    return context


def trained(world: World) -> list[dict[str, float]]:
    """What the steps of an undisturbed run reported; the run is in `trained` of the world's folder."""
    return list(world.once("trained", lambda folder: train(prepare(folder)).reports))
