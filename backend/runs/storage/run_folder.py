"""Where a run keeps its files; under ENCORE_HOME, which every worker must see."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from backend.runs.storage.control import Control, StopReason
from training.job import CHECKPOINTS_FOLDER

RUNS_FOLDER = "runs"
_MAX_LOG_BYTES = 2_000_000
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class RunFolder:
    """Names of one run's files."""

    path: Path

    @classmethod
    def of(cls, home: Path, run_id: str) -> RunFolder:
        """The folder of a run, there or not."""
        return cls((home / RUNS_FOLDER / run_id).absolute())

    @property
    def job(self) -> Path:
        """The fine-tune itself, as it was planned."""
        return self.path / "job.json"

    @property
    def launch(self) -> Path:
        """How it is to be run and evaluated."""
        return self.path / "launch.json"

    @property
    def dataset(self) -> Path:
        """Rows and card of the dataset as the run was planned with them, until it is done; no sound."""
        return self.path / "dataset"

    def datasets(self, number: int) -> list[Path]:
        """The same of so many speakers, the first one's first."""
        return [self.dataset, *(self.path / f"dataset-{place}" for place in range(2, number + 1))]

    @property
    def evaluation_plan(self) -> Path:
        """What its checkpoints speak; kept, because the dataset may be edited while it runs."""
        former = self.path / "judging.json"  # as version 0.1 calls it
        return former if former.exists() else self.path / "evaluation.json"

    @property
    def log(self) -> Path:
        """Everything that supervisor, Ray and workers print."""
        return self.path / "log.txt"

    @property
    def metrics(self) -> Path:
        """What steps report, in a file for each time that workers start."""
        return self.path / "metrics"

    @property
    def faults(self) -> Path:
        """What Ray saw go wrong, in the same form."""
        return self.path / "faults"

    @property
    def problem(self) -> Path:
        """Written by a worker that met something no other attempt would get around, in words for a person."""
        return self.path / "problem.txt"

    @property
    def control(self) -> Path:
        """What workers obey; see `Control`."""
        return self.path / "control.json"

    @property
    def lock(self) -> Path:
        """Held by the process that owns the run, whose tag is in it; see `training.model.owner`."""
        return self.path / "owner.lock"

    @property
    def reserve(self) -> Path:
        """Room that is given up on a full disk to say so; there while the run has an owner."""
        return self.path / ".reserve"

    @property
    def checkpoints(self) -> Path:
        """What training writes to go on from."""
        return self.path / CHECKPOINTS_FOLDER

    @property
    def ray(self) -> Path:
        """Ray Train's own notes; nothing of ours depends on them."""
        return self.path / "ray"

    @property
    def takes(self) -> Path:
        """A folder of WAV files for each evaluated checkpoint."""
        return self.path / "takes"

    @property
    def evaluating(self) -> Path:
        """Checkpoints as they are being evaluated; emptied afterwards."""
        return self.path / "evaluating"

    @property
    def export(self) -> Path:
        """The best checkpoint in the public format, one folder for each variant, and one for an adapter by itself."""
        return self.path / "export"

    @property
    def report(self) -> Path:
        """The page to show and keep."""
        return self.path / "report.html"

    def ask_to_stop(self, reason: StopReason) -> None:
        """Let workers and supervisor know."""
        Control.read(self.control).model_copy(update={"stop": reason, "asked_at": time.monotonic()}).write(self.control)

    def read_log(self) -> str:
        """The end of the log, without colours; empty before anything was printed."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _MAX_LOG_BYTES))
                return _COLOUR.sub("", file.read().decode("utf-8", errors="replace"))
        except FileNotFoundError:
            return ""
