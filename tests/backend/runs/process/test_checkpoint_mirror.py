"""Checkpoints that workers without the run's folder have stored come into it, and are recorded only then."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from backend.runs.process import checkpoint_mirror
from backend.runs.process.checkpoint_mirror import CheckpointMirror
from backend.runs.process.desk import DeskActor, FolderDesk
from backend.runs.process.monitor import RunMonitor
from backend.runs.storage.control import Control, LineReader
from backend.runs.storage.run_folder import RunFolder
from training.run_checkpoints import Progress, checkpoint_name, list_checkpoints, mark_best
from training.storage.folders import put_folder
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.stored_checkpoints import StoredCheckpoints


class Rows:
    """The part of a run's rows that a monitor writes."""

    def __init__(self) -> None:
        self.checkpoints: list[str] = []

    def add_metrics(self, *_: object) -> None:
        return

    def add_checkpoint(self, run_id: str, name: str, step: int) -> None:
        self.checkpoints.append(name)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    (tmp_path / "shared").mkdir()
    return ObjectStore(StorageLocation("file", str(tmp_path / "shared")), patience_seconds=0)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "home" / "runs" / "one")
    folder.path.mkdir(parents=True)
    return folder


def put(store: ObjectStore, place: Path, step: int) -> str:
    checkpoint = place / checkpoint_name(step)
    checkpoint.mkdir(parents=True)
    progress = Progress(
        step=step,
        num_steps=9,
        epoch=0,
        dataset_digest="d",
        family="torch",
        num_workers=2,
        talker_loss=1.0,
        code_predictor_loss=1.0,
    )
    (checkpoint / "progress.json").write_text(progress.model_dump_json())
    put_folder(store, f"runs/one/checkpoints/{checkpoint.name}", checkpoint)
    return checkpoint.name


def test_a_reported_checkpoint_is_recorded_once_it_is_here(
    store: ObjectStore, folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_mirror, "_POLL_SECONDS", 0.02)
    rows = Rows()
    mirror = CheckpointMirror(store, folder, 2, lambda problem: None)
    monitor = RunMonitor(rows, "one", folder, 1, mirror)
    desk = FolderDesk(folder, 1)
    for step in (1, 2, 3):
        desk.write({"step": step, "checkpoint": checkpoint_name(step)})
        monitor.poll()
    assert rows.checkpoints == []
    put(store, tmp_path / "worker", 1)
    give_up_at = time.monotonic() + 20
    while not rows.checkpoints:
        assert time.monotonic() < give_up_at
        monitor.poll()
    # The second was pruned before it could be fetched, the third is stored at the very end.
    put(store, tmp_path / "worker", 3)
    mirror.finish()
    monitor.poll()
    assert rows.checkpoints == [checkpoint_name(1), checkpoint_name(3)]
    assert [found.progress.step for found in list_checkpoints(folder.path)] == [1, 3]


def test_a_desk_elsewhere_does_what_one_beside_the_folder_does(folder: RunFolder) -> None:
    Control(attempt=2, stop="pause").write(folder.control)
    actor = DeskActor(str(folder.path), 2)
    assert Control.model_validate(actor.control()) == FolderDesk(folder, 2).control()
    assert actor.write({"step": 1}) == 0
    actor.begin()
    assert actor.write({"step": 2}) == 0
    assert list(LineReader(folder.metrics).new_lines()) == [{"step": 1}, {"step": 2}]
    assert len(list(folder.metrics.iterdir())) == 2
    DeskActor(str(folder.path), 1).record_problem("of an attempt that is over")
    assert not folder.problem.exists()
    actor.record_problem("The bucket is gone.")
    assert folder.problem.read_text() == "The bucket is gone."
    assert json.loads(folder.control.read_text())["attempt"] == 2


def test_workers_that_do_not_see_which_is_best_leave_it_stored(
    store: ObjectStore, folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_mirror, "_POLL_SECONDS", 0.02)
    names = [put(store, tmp_path / "worker", step) for step in (1, 2, 3, 4)]
    mirror = CheckpointMirror(store, folder, 9, lambda problem: None)
    folder.checkpoints.mkdir(exist_ok=True)
    mark_best(folder.path, 2)
    mirror.want(names[0])
    of_workers = StoredCheckpoints(store, tmp_path / "elsewhere" / "one")
    give_up_at = time.monotonic() + 20
    while store.read("runs/one/best") is None and time.monotonic() < give_up_at:
        time.sleep(0.02)
    of_workers.prune(1, None)
    assert of_workers.names() == [names[1], names[3]]
    mirror.finish()
