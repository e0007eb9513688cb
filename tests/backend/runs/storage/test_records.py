"""Rows of runs: what is written is read, steps are there once, and turns are taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.evaluation.scores import summarize
from backend.runs.errors import RunNotFound, RunStateInvalid
from backend.runs.storage.records import BASE, RunRecord
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.database import Database
from backend.store.home import Home
from backend.store.trash import Trash
from tests.backend.evaluation.test_scores import take


def record(run_id: str = "one", created_at: float = 1.0, **changes: object) -> RunRecord:
    fields = {
        "id": run_id,
        "dataset": "mine",
        "voice": "Ann",
        "model": "mini",
        "preset": "quick",
        "strategy": "ddp",
        "num_workers": 1,
        "state": RunState.QUEUED,
        "message": "",
        "created_at": created_at,
        "started_at": None,
        "ended_at": None,
        "heartbeat_at": None,
        "process_id": None,
        "process_started_at": None,
        "attempt": 0,
        "step": 0,
        "num_steps": 10,
        "best_checkpoint": None,
        "verdict": "",
        "export_folder": None,
        "consent": None,
        "job": {
            "voice": "Ann",
            "dataset": "/d",
            "dataset_digest": "1",
            "base_model": "/m",
            "output": "/o",
        },
    }
    return RunRecord(**{**fields, **changes})


@pytest.fixture
def rows(home: Path) -> RunTable:
    rows = RunTable(Database(home))
    rows.add(record())
    return rows


def nobody(run: RunRecord) -> bool:
    return False


def everybody(run: RunRecord) -> bool:
    return True


def test_a_run_is_read_as_it_was_added(rows: RunTable) -> None:
    assert rows.get("one") == record()
    assert rows.list() == [record()]


def test_the_error_names_an_unknown_run(rows: RunTable) -> None:
    for question in (rows.get, rows.metrics, rows.checkpoints):
        with pytest.raises(RunNotFound, match="no run 'two'"):
            question("two")


def test_the_newest_run_comes_first(rows: RunTable) -> None:
    rows.add(record("two", created_at=2.0))
    assert [run.id for run in rows.list()] == ["two", "one"]


def test_an_impossible_move_changes_nothing(rows: RunTable) -> None:
    with pytest.raises(RunStateInvalid):
        rows.move("one", RunState.DONE, "no")
    assert rows.get("one") == record()


def test_an_end_forgets_the_process_and_keeps_the_time(rows: RunTable) -> None:
    rows.change("one", process_id=7, process_started_at=1.0)
    ended = rows.move("one", RunState.FAILED, "Why.")
    assert (ended.process_id, ended.message) == (None, "Why.")
    assert ended.ended_at is not None


def test_a_step_trained_twice_is_stored_once(rows: RunTable) -> None:
    rows.add_metrics("one", 1, {1: {"talker_loss": 3.0}, 2: {"talker_loss": 2.0}})
    rows.add_metrics("one", 2, {2: {"talker_loss": 1.0}, 3: {"talker_loss": 0.5}})
    assert [(m.step, m.attempt, m.measures["talker_loss"]) for m in rows.metrics("one")] == [
        (1, 1, 3.0),
        (2, 2, 1.0),
        (3, 2, 0.5),
    ]
    assert rows.get("one").step == 3
    assert [m.step for m in rows.metrics("one", after_step=2)] == [3]


def test_steps_after_the_checkpoint_are_forgotten(rows: RunTable) -> None:
    rows.add_metrics("one", 1, {step: {} for step in range(1, 6)})
    rows.forget_steps_after("one", 3)
    assert [m.step for m in rows.metrics("one")] == [1, 2, 3]
    assert rows.get("one").step == 3


def test_checkpoints_come_with_scores_and_takes(rows: RunTable) -> None:
    rows.add_checkpoint("one", "step-00000005", 5)
    rows.add_checkpoint("one", BASE, 0)
    takes = [take(0), take(1, text="Другой текст.", transcript="x")]
    rows.add_evaluation("one", BASE, takes, summarize(takes))
    rows.fail_evaluation("one", "step-00000005", "Why.")
    base, other = rows.checkpoints("one")
    assert base.is_base
    assert base.takes == tuple(takes)
    assert base.scores == summarize(takes)
    assert (other.state, other.problem, other.scores) == ("failed", "Why.", None)
    rows.add_checkpoint("one", BASE, 0)
    assert rows.checkpoints("one")[0].state == "evaluated"


def test_deleting_leaves_nothing(rows: RunTable, home: Path) -> None:
    rows.add_metrics("one", 1, {1: {}})
    rows.add_checkpoint("one", BASE, 0)
    rows.add_evaluation("one", BASE, [take()], summarize([take()]))
    rows.add_event("one", "Something.")
    Trash(Home(home)).put("run", "one", "Ann")
    rows.add(record())
    assert rows.metrics("one") == []
    assert rows.checkpoints("one") == []
    assert list(rows.events("one")) == []


def test_claiming_counts_the_attempt(rows: RunTable) -> None:
    assert rows.claim("one", alone=True, has_owner=nobody)
    claimed = rows.get("one")
    assert (claimed.state, claimed.attempt) == (RunState.STARTING, 1)
    with pytest.raises(RunStateInvalid):
        rows.claim("one", alone=True, has_owner=nobody)


def test_one_run_at_a_time_the_earliest_first(rows: RunTable) -> None:
    rows.add(record("two", created_at=2.0))
    assert not rows.claim("two", alone=True, has_owner=everybody)
    assert rows.claim("one", alone=True, has_owner=everybody)
    assert not rows.claim("two", alone=True, has_owner=everybody)
    rows.move("one", RunState.CANCELLED, "")
    assert rows.claim("two", alone=True, has_owner=everybody)


def test_dead_runs_and_runs_on_a_cluster_do_not_block_the_queue(rows: RunTable) -> None:
    rows.claim("one", alone=True, has_owner=nobody)
    rows.add(record("two", created_at=2.0))
    rows.add(record("three", created_at=3.0))
    assert rows.claim("two", alone=True, has_owner=nobody)
    assert rows.claim("three", alone=False, has_owner=everybody)


def test_a_row_of_the_previous_version_still_opens(rows: RunTable, home: Path) -> None:
    fields = {"voice": "Ann", "dataset": "/d", "dataset_digest": "1", "base_model": "/m", "output": "/o"}
    with Database(home).transaction() as connection:
        connection.execute("UPDATE runs SET job = ?", (json.dumps({**fields, "kept_change": 0.5}),))
    assert rows.get("one").job.interpolation_alpha == 0.5
