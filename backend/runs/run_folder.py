"""Where a run keeps its files; under ENCORE_HOME, which every worker must see."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

RUNS_FOLDER = "runs"
_LONGEST_LOG_BYTES = 2_000_000
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

StopReason = Literal["cancel", "pause"]


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
        """How it is to be run and judged."""
        return self.path / "launch.json"

    @property
    def log(self) -> Path:
        """Everything that supervisor, Ray and workers print."""
        return self.path / "log.txt"

    @property
    def events(self) -> Path:
        """Faults that Ray saw, one JSON object a line."""
        return self.path / "events.jsonl"

    @property
    def stop(self) -> Path:
        """There while the run is asked to stop; holds why. A file, because workers on any machine can see it."""
        return self.path / "stop"

    @property
    def ray(self) -> Path:
        """Ray Train's own notes; nothing of ours depends on them."""
        return self.path / "ray"

    @property
    def takes(self) -> Path:
        """A folder of WAV files for each judged checkpoint."""
        return self.path / "takes"

    @property
    def judging(self) -> Path:
        """Checkpoints as they are being judged; emptied afterwards."""
        return self.path / "judging"

    @property
    def export(self) -> Path:
        """The best checkpoint in the public format, one folder for each variant."""
        return self.path / "export"

    @property
    def report(self) -> Path:
        """The page to show and keep."""
        return self.path / "report.html"

    def ask_to_stop(self, reason: StopReason) -> None:
        """Let workers and supervisor know."""
        self.stop.write_text(reason, encoding="utf-8")

    def stop_reason(self) -> StopReason | None:
        """Why the run is to stop; None if it is not."""
        try:
            return "pause" if self.stop.read_text(encoding="utf-8") == "pause" else "cancel"
        except FileNotFoundError:
            return None

    def read_log(self) -> str:
        """The end of the log, without colours; empty before anything was printed."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _LONGEST_LOG_BYTES))
                return _COLOUR.sub("", file.read().decode("utf-8", errors="replace"))
        except FileNotFoundError:
            return ""
