"""A run that keeps its checkpoints in a storage: there whole, found again elsewhere, and never in training's way."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.golden import GOLDEN_CHECKPOINT
from tests.object_server import Fault, FaultProxy
from tests.training.finetuning import make_job, make_rows, write_dataset
from tests.training.strategy_worker import RecordingContext
from training.errors import StorageError
from training.export import EXPORTS_FOLDER
from training.job import FineTuneJob
from training.run_checkpoints import checkpoint_name, list_checkpoints, mark_best, read_checkpoint, require_intact
from training.storage.folders import describe, get_folder, list_folders, read_manifest
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.stored_checkpoints import StoredCheckpoints
from training.stored_inputs import put_model
from training.worker import RunStorage, main, run_worker

CHECKPOINTS = "runs/run/checkpoints"


@pytest.fixture
def job(tmp_path: Path) -> FineTuneJob:
    write_dataset(tmp_path / "dataset", make_rows((9, 12), num_held_out=0))
    return make_job(tmp_path, num_steps=3, checkpoint_every=1, keep_checkpoints=2, export_at_end=False)


@pytest.fixture
def folder(tmp_path: Path) -> ObjectStore:
    (tmp_path / "shared").mkdir()
    return ObjectStore(StorageLocation("file", str(tmp_path / "shared")))


def train(job: FineTuneJob, store: ObjectStore | None, stop_after: int | None = None) -> RecordingContext:
    context = RecordingContext(0, 1, stop_after)
    run_worker(job, context, storage=RunStorage(store=store) if store is not None else None)
    return context


def losses_of(context: RecordingContext) -> list[float]:
    return [report["talker_loss"] for report in context.reports]


def test_what_is_stored_is_what_is_kept_here(bucket: ObjectStore, job: FineTuneJob) -> None:
    train(job.model_copy(update={"export_at_end": True}), bucket)
    assert list_folders(bucket, CHECKPOINTS) == [checkpoint_name(2), checkpoint_name(3)]
    for checkpoint in list_checkpoints(job.output):
        assert read_manifest(bucket, f"{CHECKPOINTS}/{checkpoint.folder.name}") == describe(checkpoint.folder)
    assert read_manifest(bucket, "runs/run/export") == describe(job.output / EXPORTS_FOLDER)


def test_a_run_whose_machine_is_gone_continues_elsewhere_as_if_nothing_had_been(
    folder: ObjectStore, job: FineTuneJob, tmp_path: Path
) -> None:
    whole = train(job.model_copy(update={"output": tmp_path / "alone"}), None)
    train(job, folder, stop_after=2)
    shutil.rmtree(job.output)
    again = train(job, folder)
    assert losses_of(again) == losses_of(whole)[2:]
    assert again.checkpoints == [checkpoint_name(3)]
    for checkpoint in list_checkpoints(job.output):
        require_intact(checkpoint)


def test_checkpoints_name_the_base_model_that_was_planned_with_also_where_it_had_to_be_fetched(
    folder: ObjectStore, job: FineTuneJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who evaluates and exports them has that one, and not the cache of the machine that trained."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    job = job.model_copy(update={"base_model": tmp_path / "another-machines-model", "num_steps": 1})
    run_worker(
        job, RecordingContext(0, 1), storage=RunStorage(store=folder, base_model=put_model(folder, GOLDEN_CHECKPOINT))
    )
    assert list_checkpoints(job.output)[-1].job().base_model == job.base_model


def test_a_damaged_checkpoint_in_the_storage_is_passed_over(folder: ObjectStore, job: FineTuneJob) -> None:
    train(job, folder, stop_after=2)
    newest = f"{CHECKPOINTS}/{checkpoint_name(2)}"
    manifest = read_manifest(folder, newest)
    assert manifest is not None
    folder.write(f"{newest}/{manifest.files['progress.json'].sha256}", b"{}")
    shutil.rmtree(job.output)
    again = train(job, folder, stop_after=1)
    assert again.reports[0]["step"] == 2
    assert get_folder(folder, newest, job.output.parent / "whole") is not None, "the new one has its place"
    assert "is not what was stored" in again.told[0]
    assert "An earlier checkpoint takes its place." in again.told[0]


def test_a_storage_that_fails_meanwhile_stops_nothing_and_gets_the_rest_later(
    bucket: ObjectStore, proxy: FaultProxy, job: FineTuneJob
) -> None:
    impatient = ObjectStore(bucket.location, patience_seconds=0)
    proxy.faults.append(Fault("busy", "PUT", times=10_000))
    job = job.model_copy(update={"num_steps": 2, "checkpoint_every": 2})
    context = train(job, impatient)
    assert context.reports[-1]["step"] == 2
    assert "was not uploaded and stays in" in context.told[0]
    assert list_folders(bucket, CHECKPOINTS) == []
    proxy.faults.clear()
    train(job, impatient)
    assert list_folders(bucket, CHECKPOINTS) == [checkpoint_name(2)]


def test_a_checkpoint_that_still_has_to_be_sent_is_not_pruned(
    folder: ObjectStore, job: FineTuneJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage slower than training, of a run that keeps one checkpoint: each arrives whole all the same."""
    arrived = []

    def slow_put(stored: StoredCheckpoints, checkpoint: Path) -> None:
        time.sleep(0.5)
        require_intact(read_checkpoint(checkpoint))
        arrived.append(checkpoint.name)

    monkeypatch.setattr(StoredCheckpoints, "put", slow_put)
    train(job.model_copy(update={"keep_checkpoints": 1}), folder)
    assert arrived == [checkpoint_name(1), checkpoint_name(2), checkpoint_name(3)]
    assert [checkpoint.progress.step for checkpoint in list_checkpoints(job.output)][-1] == 3


def test_the_best_stays_in_the_storage_too(folder: ObjectStore, job: FineTuneJob) -> None:
    job = job.model_copy(update={"keep_checkpoints": 1})
    train(job, folder, stop_after=1)
    mark_best(job.output, 1)
    train(job, folder)
    assert list_folders(folder, CHECKPOINTS) == [checkpoint_name(1), checkpoint_name(3)]


def test_a_run_whose_storage_is_not_there_does_not_begin(job: FineTuneJob, tmp_path: Path) -> None:
    nowhere = ObjectStore(StorageLocation("file", str(tmp_path / "unmounted")))
    with pytest.raises(StorageError, match="does not exist here"):
        train(job, nowhere)
    # What has begun here goes on here.
    train(job, None, stop_after=1)
    context = train(job, nowhere, stop_after=1)
    assert context.reports[0]["step"] == 2
    assert "The run continues from what is on this machine." in context.told[0]


def test_the_command_stores_where_it_is_told(
    job: FineTuneJob, folder: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    job.model_copy(update={"num_steps": 1}).write(tmp_path / "job.json")
    assert main([str(tmp_path / "job.json"), "--storage", str(folder.location)]) == 0
    assert list_folders(folder, CHECKPOINTS) == [checkpoint_name(1)]
    assert main([str(tmp_path / "job.json"), "--storage", "shared"]) == 1
    assert "s3://bucket/prefix" in capsys.readouterr().err
