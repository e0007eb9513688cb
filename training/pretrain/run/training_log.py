"""A run's log: one JSON line per report, and the progress shown to the user."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean, median

LOG = "log.jsonl"

# The time left is estimated from the median over this many steps, so that a pause does not distort it.
_NUM_TIMED_STEPS = 100


class TrainingLog:
    """Collects the losses of single steps, and reports their means to the log and the user."""

    def __init__(self, run: Path, num_steps: int, report: Callable[[str], None]) -> None:
        self._path = run / LOG
        self._num_steps = num_steps
        self._report = report
        self._pending: dict[str, list[float]] = {}
        self._durations: deque[float] = deque(maxlen=_NUM_TIMED_STEPS)
        self._step_began = time.monotonic()

    def forget_after(self, step: int) -> None:
        """Drop lines of steps that a killed run did not save and that will be repeated."""
        if not self._path.is_file():
            return
        kept = [json.dumps(line) + "\n" for line in read_log(self._path.parent) if line["step"] <= step]
        temporary = self._path.with_suffix(".new")
        temporary.write_text("".join(kept), encoding="utf-8")
        temporary.replace(self._path)

    def begin_step(self) -> None:
        """Start timing a step; time between steps does not count."""
        self._step_began = time.monotonic()

    def add(self, values: Mapping[str, float]) -> None:
        """Record the losses of a finished step."""
        self._durations.append(time.monotonic() - self._step_began)
        for name, value in values.items():
            self._pending.setdefault(name, []).append(value)

    def write(self, step: int, **more: float) -> None:
        """Log the means since the last line, for `step` steps done."""
        means = {name: round(fmean(values), 5) for name, values in self._pending.items()}
        self._pending.clear()
        seconds = median(self._durations)
        left = int(seconds * (self._num_steps - step))
        self._append({"step": step, **means, **more})
        shown = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
        self._report(
            f"{step} of {self._num_steps}: {shown}; {seconds:.2f} s a step, {left // 3600}:{left // 60 % 60:02d} h left"
        )

    def write_validation(self, step: int, values: Mapping[str, float]) -> None:
        """Log measurements on held-out speech after `step` steps."""
        self._append({"step": step, **{f"validation/{name}": round(value, 5) for name, value in values.items()}})
        shown = [f"{name} {value:.3f}" for name, value in values.items() if "/" not in name]
        self._report(f"{step}, held out: {', '.join(shown)}")

    def _append(self, line: Mapping[str, float]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_log(run: Path) -> Iterator[dict[str, float]]:
    """The lines of a run's log, without a last one that was truncated by a kill."""
    for line in (run / LOG).read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
