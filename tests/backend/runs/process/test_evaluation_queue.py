"""What is listened to next, and what the disk keeps for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.evaluation.plan import plan_evaluation
from backend.runs.planning.launch import LaunchPlan
from backend.runs.process.evaluation_queue import MAX_WAITING, EvaluationQueue
from backend.runs.storage.records import BASE
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.store.database import Database
from tests.backend.runs.storage.test_records import record
from tests.golden import GOLDEN_CHECKPOINT
from training.data.code_rows import ROWS_FILE, read_card, read_code_rows
from training.machine import Machine
from training.run_checkpoints import IN_USE_FILE

LAUNCH = LaunchPlan(run_id="one", machine=Machine(num_cpus=2, num_gpus=0), max_workers=1)


@pytest.fixture
def rows(home: Path) -> RunTable:
    rows = RunTable(Database(home))
    rows.add(record())
    return rows


@pytest.fixture
def folder(home: Path, dataset: Path) -> RunFolder:
    folder = RunFolder.of(home, "one")
    folder.path.mkdir(parents=True)
    card, rows = read_card(dataset), read_code_rows(dataset / ROWS_FILE)
    plan = plan_evaluation(dataset, card, rows, GOLDEN_CHECKPOINT, num_held_out=1, num_standard=0, seed=1)
    folder.evaluation_plan.write_text(plan.model_dump_json())
    return folder


def save(rows: RunTable, folder: RunFolder, step: int) -> Path:
    path = folder.checkpoints / f"step-{step:08d}"
    path.mkdir(parents=True)
    rows.add_checkpoint("one", path.name, step)
    return path


def names(queue: EvaluationQueue) -> list[str]:
    return [point.name for point in queue.waiting()]


def test_the_base_model_comes_first_and_checkpoints_are_held(rows: RunTable, folder: RunFolder) -> None:
    path = save(rows, folder, 5)
    assert names(EvaluationQueue(rows, "one", folder, LAUNCH)) == [BASE, "step-00000005"]
    assert (path / IN_USE_FILE).exists()


def test_the_oldest_waiting_checkpoints_are_released_when_training_is_faster(rows: RunTable, folder: RunFolder) -> None:
    queue = EvaluationQueue(rows, "one", folder, LAUNCH)
    paths = [save(rows, folder, step) for step in range(1, MAX_WAITING + 1)]
    assert len(names(queue)) == 1 + MAX_WAITING
    late = save(rows, folder, 100)
    assert names(queue) == [BASE, *(path.name for path in paths[1:]), late.name]
    assert not (paths[0] / IN_USE_FILE).exists()
    assert "Newer checkpoints came" in rows.checkpoints("one")[1].problem


def test_a_checkpoint_that_is_gone_is_reported(rows: RunTable, folder: RunFolder) -> None:
    queue = EvaluationQueue(rows, "one", folder, LAUNCH)
    save(rows, folder, 5).rmdir()
    assert names(queue) == [BASE]
    assert rows.checkpoints("one")[1].state == "failed"


def test_an_evaluation_cut_short_by_a_killed_supervisor_is_repeated(rows: RunTable, folder: RunFolder) -> None:
    EvaluationQueue(rows, "one", folder, LAUNCH)
    rows.mark_evaluating("one", BASE)
    assert names(EvaluationQueue(rows, "one", folder, LAUNCH)) == [BASE]


def test_a_run_without_evaluation_waits_for_nothing(rows: RunTable, folder: RunFolder) -> None:
    queue = EvaluationQueue(rows, "one", folder, LAUNCH.model_copy(update={"evaluate": False}))
    assert not queue.advance()
    assert list(rows.checkpoints("one")) == []
