"""Runs of the same job in different ways, and what it means that they learnt the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import torch

from tests.training.finetuning import make_job
from tests.training.strategy_worker import RecordingContext
from training.export import read_weights
from training.job import FineTuneJob
from training.run_checkpoints import list_checkpoints
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.stored_checkpoints import StoredCheckpoints
from training.worker import run_worker

NUM_STEPS = 20
# Enough to stop in the middle of, and to see a choice at work.
FEW_STEPS, HALF = 6, 3
FRAME_COUNTS = (9, 16, 23, 30, 12, 18, 25, 31, 14, 20, 11, 27, 10, 22)


@dataclass
class Runs:
    """What all the runs of this file reported and left on disk."""

    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @cached_property
    def storage(self) -> ObjectStore:
        """For runs on machines that share nothing else."""
        folder = self.folder / "storage"
        folder.mkdir()
        return ObjectStore(StorageLocation("file", str(folder)))

    def job(self, name: str, strategy: str, num_workers: int, **changes) -> FineTuneJob:
        fields = {"num_workers": num_workers, "num_steps": NUM_STEPS, "export_at_end": False, **changes}
        return make_job(self.folder, output=self.folder / name, strategy=strategy, **fields)

    def here(self, name: str, job: FineTuneJob, stop_after: int | None = None) -> None:
        context = RecordingContext(0, 1, stop_after)
        run_worker(job, context)
        found = {"reports": context.reports, "checkpoints": context.checkpoints}
        (self.results / f"{name}.json").write_text(json.dumps(found))

    def reports(self, name: str) -> list[dict[str, float]]:
        return json.loads((self.results / f"{name}.json").read_text())["reports"]

    def fetch(self, name: str) -> None:
        """Bring a run's newest checkpoint from the storage to where it is looked for."""
        stored = StoredCheckpoints(self.storage, self.folder / name)
        assert stored.fetch(stored.names()[-1])

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        newest = list_checkpoints(self.folder / name)[-1]
        assert newest.progress.step == newest.progress.num_steps
        return dict(read_weights(newest, torch.zeros(1, 1)).talker)


def assert_same_learning(runs: Runs, name: str, reference: str, first_step: int = 0) -> None:
    expected, found = runs.reports(reference)[first_step:], runs.reports(name)
    assert [report["step"] for report in found] == [report["step"] for report in expected]
    for key in ("talker_loss", "code_predictor_loss", "gradient_norm", "learning_rate"):
        assert [report[key] for report in found] == pytest.approx([report[key] for report in expected], rel=1e-5), key
    expected_weights, found_weights = runs.weights(reference), runs.weights(name)
    assert found_weights.keys() == expected_weights.keys()
    for key, expected_weight in expected_weights.items():
        distance = (found_weights[key] - expected_weight).norm() / expected_weight.norm()
        assert distance < 1e-5, f"{key}: {distance}"
