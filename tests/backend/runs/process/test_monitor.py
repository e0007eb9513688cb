"""What workers wrote becomes rows: each step once, checkpoints to be judged, faults in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.runs.process.monitor import RunMonitor, describe_fault
from backend.runs.storage.control import LineWriter
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.store.database import Database
from tests.backend.runs.storage.test_records import record


@pytest.fixture
def rows(home: Path) -> RunTable:
    rows = RunTable(Database(home))
    rows.add(record())
    return rows


@pytest.fixture
def folder(home: Path) -> RunFolder:
    return RunFolder.of(home, "one")


def step(number: int, loss: float = 1.0, **more: object) -> dict[str, object]:
    return {"step": number, "num_steps": 10, "talker_loss": loss, **more}


def test_steps_and_checkpoints_become_rows(rows: RunTable, folder: RunFolder) -> None:
    monitor = RunMonitor(rows, "one", folder, 1)
    assert not monitor.poll()
    lines = LineWriter(folder.metrics, 1)
    lines.write({"workers": 2})
    assert monitor.poll()
    lines.write(step(1))
    lines.write(step(2, checkpoint="step-00000002"))
    monitor.poll()
    assert [(m.step, m.measures) for m in rows.metrics("one")] == [(1, {"talker_loss": 1.0}), (2, {"talker_loss": 1.0})]
    assert [(point.name, point.step, point.state) for point in rows.checkpoints("one")] == [
        ("step-00000002", 2, "waiting")
    ]
    assert list(rows.events("one")) == []


def test_a_lost_worker_is_reported_and_its_steps_are_not_doubled(rows: RunTable, folder: RunFolder) -> None:
    monitor = RunMonitor(rows, "one", folder, 1)
    before = LineWriter(folder.metrics, 1)
    before.write({"workers": 2})
    for number in (1, 2, 3):
        before.write(step(number, loss=5.0))
    LineWriter(folder.faults, 1).write(
        {"ranks": [1], "cause": "The actor is dead because its worker process has died."}
    )
    after = LineWriter(folder.metrics, 1)
    after.write({"workers": 1})
    for number in (3, 4):
        after.write(step(number))
    monitor.poll()
    assert [(m.step, m.measures["talker_loss"]) for m in rows.metrics("one")] == [(1, 5), (2, 5), (3, 1), (4, 1)]
    assert [event.sentence for event in rows.events("one")] == [
        "Training continues with 1 worker instead of 2.",
        "A worker was lost (its process was killed or crashed); training continues from the last checkpoint.",
    ]


def test_steps_that_an_earlier_supervisor_did_not_record_are_kept(rows: RunTable, folder: RunFolder) -> None:
    for _ in range(2):
        lines = LineWriter(folder.metrics, 1)
        lines.write({"workers": 2})
        lines.write(step(1))
    LineWriter(folder.faults, 1).write({"ranks": [0], "cause": "long ago"})
    RunMonitor(rows, "one", folder, 2).poll()
    assert [m.step for m in rows.metrics("one")] == [1]
    assert list(rows.events("one")) == []


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"ranks": [0, 1], "cause": "ValueError: no.\nmore"}, "2 workers were lost (ValueError: no)"),
        ({"ranks": [0], "cause": "Node 7 has died"}, "its machine is gone"),
        ({"ranks": [0], "cause": "The actor 05 is unavailable: RpcError"}, "it does not answer any more"),
        (
            {"ranks": [0], "cause": "[/gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:4509"},
            "(the connection to another one broke)",
        ),
        ({}, "the log says why"),
    ],
)
def test_faults_are_described_in_plain_words(fault: dict[str, object], told: str) -> None:
    assert told in describe_fault(fault)
