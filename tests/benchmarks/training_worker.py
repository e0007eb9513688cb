# Shape letters: S speaker, D talker width.
"""Our side of the training benchmark: the loop of a fine-tune in its own process. Started by `training.py`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from tests.benchmarks.reference_training import forget_peak, peak_bytes
from training.data.batching import BatchPlan, BatchShape, StepPlan, generator_of
from training.data.training_set import ClipUse, TrainingClip, TrainingSet
from training.job import FineTuneJob
from training.loop import LoopEvents, StepReport, train
from training.model.checkpoint.reading import read_config
from training.strategies.build import build_learner
from training.worker import process_group
from training.workers import Workers


class SameClips(BatchPlan):
    """The clips in the dataset's order, the same number in every micro-batch: as the reference has them."""

    clips_per_micro_batch: int

    @override
    def _plan_epoch(self, epoch: int) -> list[StepPlan]:
        uses = [ClipUse(clip=clip) for clip in range(len(self._training_set.clips))]
        size, per_step = self.clips_per_micro_batch, self._shape.micro_batches
        batches = [uses[begin : begin + size] for begin in range(0, len(uses), size)]
        steps = [batches[begin : begin + per_step] for begin in range(0, len(batches), per_step)]
        return [self._step(epoch, number, step) for number, step in enumerate(steps)]


class Turn(LoopEvents):
    """Ends the loop after so many steps, and counts clips."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    @override
    def stop_requested(self) -> bool:
        self.left -= 1
        return self.left == 0

    @override
    def after_step(self, report: StepReport, *, is_stopping: bool) -> None:
        """Nothing to keep."""


class StepWorker:
    """A job on clips that are given, with weights that are given."""

    def __init__(self, setup: dict[str, Any]) -> None:
        torch.set_num_threads(setup["threads"])
        folder = Path(setup["checkpoint"])
        config = read_config(folder)
        clips = tuple(
            TrainingClip(
                clip_id=str(number),
                text_ids=tuple(clip["text_ids"]),
                language="auto",
                codes_FQ=torch.tensor(clip["codes"]),
            )
            for number, clip in enumerate(setup["clips"])
        )
        training_set = TrainingSet(
            config=config,
            role_ids=tuple(setup["role_ids"]),
            clips=clips,
            speakers_SD=torch.tensor(setup["speaker"]).unsqueeze(0),
        )
        self.job = FineTuneJob.parse(
            {
                "voice": "Ann",
                "dataset": folder,
                "dataset_digest": "none",
                "base_model": folder,
                "output": folder / "run",
                "device": "cpu",
                "learning_rate": setup["learning_rate"],
                "micro_batches": setup["micro_batches"],
                **setup["job"],
            }
        )
        SameClips.clips_per_micro_batch = setup["clips_per_micro_batch"]
        shape = BatchShape(
            micro_batches=self.job.micro_batches,
            micro_batch_tokens=self.job.micro_batch_tokens,
            max_tokens=self.job.max_clip_tokens,
            batching=self.job.batching,
        )
        self.batches = SameClips(training_set, shape, seed=1, num_epochs=1, num_steps=1_000_000)
        self.workers = Workers(rank=0, size=1, device=torch.device("cpu"))
        self.learner = build_learner(self.job, config, self.workers)
        self.step = 0

    def about(self) -> dict[str, Any]:
        """What loading took."""
        return {"torch": torch.__version__, "loading_bytes": peak_bytes()}

    def losses(self) -> dict[str, Any]:
        """Both losses of the first micro-batch, with the weights as they were loaded."""
        micro_batch = self.batches.step(0).micro_batches[0]
        with torch.no_grad():
            losses = self.learner.losses(self.batches.collate(micro_batch), generator_of(micro_batch), is_last=True)
        return {"losses": [float(losses.talker), float(losses.code_predictor)]}

    def measure(self, steps: int) -> dict[str, Any]:
        """Do some steps of the optimizer."""
        forget_peak()
        first = self.step
        started, computed = time.perf_counter(), time.process_time()
        self.step = train(self.learner, self.batches, self.job, self.workers, Turn(steps), first_step=first)
        return {
            "seconds": time.perf_counter() - started,
            "processor_seconds": time.process_time() - computed,
            "clips": sum(self.batches.step(step).num_clips for step in range(first, self.step)),
            "peak_bytes": peak_bytes(),
        }


def main() -> None:
    """Answer one line of JSON with another until nobody asks."""
    with process_group():
        worker = StepWorker(json.loads(sys.stdin.readline()))
        print(json.dumps(worker.about()), flush=True)
        for line in sys.stdin:
            steps = json.loads(line)["steps"]
            print(json.dumps(worker.measure(steps) if steps else worker.losses()), flush=True)


if __name__ == "__main__":
    main()
