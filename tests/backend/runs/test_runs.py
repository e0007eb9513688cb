"""Steering runs whose supervisor is gone: rows are put right, and nothing impossible is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.runs.errors import RunError, RunNotFound, RunStateInvalid
from backend.runs.runs import Runs
from backend.runs.storage.control import Control
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.database import Database
from backend.store.home import Home
from backend.store.trash import Trash
from tests.backend.runs.storage.test_records import record

LONG_GONE = {"process_id": 2**22 + 1, "process_started_at": 1.0}


@pytest.fixture
def rows(home: Path) -> RunTable:
    return RunTable(Database(home))


@pytest.fixture
def runs(home: Path, rows: RunTable) -> Runs:
    folder = RunFolder.of(home, "one")
    folder.path.mkdir(parents=True)
    Control(attempt=1).write(folder.control)
    return Runs(Home(home))


def test_a_run_whose_process_is_gone_is_interrupted(runs: Runs, rows: RunTable) -> None:
    rows.add(record(state=RunState.RUNNING, **LONG_GONE))
    assert runs.reconcile(resume=False) == []
    run = runs.get("one")
    assert (run.state, run.process_id) == (RunState.INTERRUPTED, None)
    assert "process was gone" in runs.events("one")[0].sentence


def test_a_run_that_ended_by_itself_is_not_changed(runs: Runs, rows: RunTable) -> None:
    for number, state in enumerate(sorted(set(RunState) - {s for s in RunState if s.is_active or s == "interrupted"})):
        rows.add(record(f"run-{number}", state=state))
    before = runs.list()
    assert runs.reconcile() == []
    assert runs.list() == before


def test_a_run_without_files_is_not_resumed_and_says_why(runs: Runs, rows: RunTable) -> None:
    rows.add(record(state=RunState.RUNNING, **LONG_GONE))
    assert runs.reconcile() == []
    assert "files of run one are gone" in runs.events("one")[-1].sentence
    with pytest.raises(RunError, match="files of run one are gone"):
        runs.resume("one")


def test_a_run_without_supervisor_is_cancelled_at_once(runs: Runs, rows: RunTable) -> None:
    rows.add(record(state=RunState.RUNNING, **LONG_GONE))
    runs.cancel("one")
    assert runs.get("one").state is RunState.CANCELLED


def test_a_run_without_supervisor_is_paused_at_once(runs: Runs, rows: RunTable) -> None:
    rows.add(record(state=RunState.RUNNING, **LONG_GONE))
    runs.pause("one")
    assert runs.get("one").state is RunState.PAUSED
    runs.cancel("one")
    assert runs.get("one").state is RunState.CANCELLED


def test_a_finished_run_cannot_be_steered(runs: Runs, rows: RunTable) -> None:
    rows.add(record(state=RunState.DONE))
    for verb in (runs.cancel, runs.pause, runs.resume):
        with pytest.raises(RunStateInvalid, match="Run one is done"):
            verb("one")


def test_the_error_names_the_unknown_run(runs: Runs) -> None:
    for verb in (runs.get, runs.log, runs.events, runs.metrics, runs.cancel, runs.resume, runs.delete):
        with pytest.raises(RunNotFound, match="There is no run 'seven'"):
            verb("seven")


def test_deleting_removes_row_and_files(runs: Runs, rows: RunTable, home: Path) -> None:
    rows.add(record(state=RunState.FAILED))
    rows.add_metrics("one", 1, {1: {"loss": 2.0}})
    before, trash = runs.get("one"), Trash(Home(home))
    deleted = runs.delete("one")
    assert (runs.list(), deleted.label) == ([], "The run for Ann")
    trash.restore(deleted.id)
    assert (runs.get("one"), runs.newest_measures("one")) == (before, {"loss": 2.0})
    trash.purge(runs.delete("one").id)
    assert not runs.folder("one").exists()


def test_time_left_is_known_after_the_first_steps(runs: Runs, rows: RunTable) -> None:
    rows.add(record(num_steps=10))
    assert runs.seconds_left("one") is None
    rows.add_metrics("one", 1, {step: {"seconds_per_step": 2.0} for step in (1, 2)})
    assert runs.seconds_left("one") == 16
    assert runs.newest_measures("one") == {"seconds_per_step": 2.0}
