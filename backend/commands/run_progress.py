"""Following a run in a terminal, and stopping it politely."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from backend.runs.runs import Runs
from backend.runs.storage.records import RunRecord
from backend.runs.storage.states import RunState

POLL_SECONDS = 0.5
_LINES_WITHOUT_TERMINAL = 10


def follow(runs: Runs, run_id: str, stream: TextIO = sys.stderr) -> RunRecord:
    """Show a run's progress until it ends; Ctrl-C cancels it, which keeps its last checkpoint.

    A second Ctrl-C stops the showing only: the cancelling goes on by itself.
    """
    progress = RunProgress(stream)
    try:
        return _wait(runs, run_id, progress)
    except KeyboardInterrupt:
        progress.clear()
        print("Cancelling: the last checkpoint is kept.", file=stream)
        if runs.get(run_id).state.is_active:
            runs.cancel(run_id)
        return _wait(runs, run_id, progress)
    finally:
        progress.clear()


def _wait(runs: Runs, run_id: str, progress: RunProgress) -> RunRecord:
    while (run := runs.get(run_id)).state.is_active:
        if not runs.is_looked_after(run_id):
            # Its process was killed; the row alone would say for ever that it is running.
            runs.reconcile(resume=False)
            continue
        progress.show(run, runs.seconds_left(run_id), runs.newest_measures(run_id))
        time.sleep(POLL_SECONDS)
    return run


class RunProgress:
    """A line that is written over on a terminal; elsewhere a line for each change that matters."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0
        self._told: tuple[RunState, int] | None = None

    def show(self, run: RunRecord, seconds_left: float | None, measures: dict[str, float]) -> None:
        """Say how far it has come."""
        text = describe_progress(run, seconds_left, measures)
        if self._stream.isatty():
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
            self._width = len(text)
            return
        stage = (run.state, int(run.share_done * _LINES_WITHOUT_TERMINAL))
        if stage != self._told:
            self._told = stage
            print(text, file=self._stream, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def describe_progress(run: RunRecord, seconds_left: float | None, measures: dict[str, float]) -> str:
    """One line about a run that is at work."""
    if run.state is not RunState.RUNNING or not run.step:
        return f"{run.id}: {run.state}. {run.message}"
    told = [f"{run.id}: step {run.step} of {run.num_steps}"]
    if "talker_loss" in measures:
        told.append(f"talker {measures['talker_loss']:.3f}")
    if "code_predictor_loss" in measures:
        told.append(f"code predictor {measures['code_predictor_loss']:.3f}")
    if seconds_left is not None:
        told.append(f"about {describe_seconds(seconds_left)} left")
    return ", ".join(told)


def describe_seconds(seconds: float) -> str:
    """A duration for a person: seconds, minutes, hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
