"""Moves what workers wrote into a run's folder into the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.runs.process.checkpoint_mirror import CheckpointMirror
from backend.runs.storage.control import LineReader
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from training.run_checkpoints import damage_notice, list_checkpoints, set_damaged_aside

_MAX_CAUSE_LENGTH = 160
_NOT_MEASURES = ("step", "num_steps", "checkpoint", "workers", "at")


class RunMonitor:
    """Reads what is new since the last call; each attempt has its own."""

    def __init__(
        self, rows: RunTable, run_id: str, folder: RunFolder, attempt: int, mirror: CheckpointMirror | None = None
    ) -> None:
        """Checkpoints that the workers keep elsewhere are recorded once `mirror` has brought them."""
        self._rows, self._run_id, self._folder, self._attempt = rows, run_id, folder, attempt
        self._mirror = mirror
        self._metrics, self._faults = LineReader(folder.metrics), LineReader(folder.faults)
        # What earlier attempts wrote has been recorded by their supervisors, or is recorded late by this one.
        self._num_workers: int | None = None
        self._has_told = self._is_reporting = False
        self._record_steps(reports=False)
        self._is_reporting = True
        for _ in self._faults.new_lines():
            pass
        self._num_workers = None

    def poll(self) -> bool:
        """Record what is new. Returns whether workers are training."""
        began = self._record_steps(reports=True)
        for name in self._mirror.take() if self._mirror is not None else ():
            self._add_checkpoint(name)
        for fault in self._faults.new_lines():
            self._rows.add_event(self._run_id, describe_fault(fault))
        return began

    def _record_steps(self, *, reports: bool) -> bool:
        measures: dict[int, dict[str, float]] = {}
        began = False
        for line in self._metrics.new_lines():
            began = True
            if notice := line.get("notice"):
                if reports:
                    self._rows.add_event(self._run_id, str(notice))
                    self._rows.change(self._run_id, message=str(notice))
                    self._has_told = True
                continue
            if "step" not in line:
                self._note_workers(int(line["workers"]), reports=reports)
                continue
            measures[int(line["step"])] = _measures(line)
            if name := line.get("checkpoint"):
                self._meet_checkpoint(str(name))
        self._rows.add_metrics(self._run_id, self._attempt, measures)
        if measures and self._has_told:
            self._rows.change(self._run_id, message="Training.")
            self._has_told = False
        return began

    def _note_workers(self, num_workers: int, *, reports: bool) -> None:
        before, self._num_workers = self._num_workers, num_workers
        if before is not None and reports:
            change = "again" if before == num_workers else f"instead of {before}"
            self._rows.add_event(self._run_id, f"Training continues with {_count(num_workers)} {change}.")

    def _meet_checkpoint(self, name: str) -> None:
        if self._mirror is None or self._mirror.is_here(name):
            self._add_checkpoint(name)
        elif self._is_reporting:
            self._mirror.want(name)

    def _add_checkpoint(self, name: str) -> None:
        step = int(name.rpartition("-")[2])
        self._rows.add_checkpoint(self._run_id, name, step)


def register_checkpoints(rows: RunTable, run_id: str, folder: RunFolder) -> int:
    """Record the checkpoints on disk. Returns the steps of the newest one; 0 without any."""
    for name in set_damaged_aside(folder.path):
        rows.add_event(run_id, damage_notice(name))
    found = list_checkpoints(folder.path)
    for checkpoint in found:
        rows.add_checkpoint(run_id, checkpoint.folder.name, checkpoint.progress.step)
    return found[-1].progress.step if found else 0


def describe_fault(fault: Mapping[str, Any]) -> str:
    """What Ray saw go wrong, for a person."""
    ranks = [int(rank) for rank in fault.get("ranks", [])]
    who = "A worker was" if len(ranks) <= 1 else f"{len(ranks)} workers were"
    return f"{who} lost ({_plain_cause(str(fault.get('cause', '')))}); training continues from the last checkpoint."


def _plain_cause(cause: str) -> str:
    """Ray's words for a lost process fill half a page and guess; the log has them."""
    if "actor is dead" in cause or "worker process has died" in cause or "ActorDiedError" in cause:
        return "its process was killed or crashed"
    if "node" in cause.lower() and ("dead" in cause.lower() or "died" in cause.lower()):
        return "its machine is gone"
    if "connection closed by peer" in cause.lower() or "connection reset by peer" in cause.lower():
        return "the connection to another one broke"
    if "unavailable" in cause.lower():
        return "it does not answer any more"
    short = cause.strip().split("\n")[0][:_MAX_CAUSE_LENGTH]
    return short.rstrip(".") or "the log says why"


def _measures(line: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in line.items() if name not in _NOT_MEASURES}


def _count(num_workers: int) -> str:
    return "1 worker" if num_workers == 1 else f"{num_workers} workers"
