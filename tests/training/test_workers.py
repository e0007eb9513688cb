"""What several workers decide together, also where each of them sees something else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.training.finetuning import make_job, make_rows, write_dataset
from tests.training.group_worker import call_together
from tests.training.strategy_worker import RecordingContext
from training import worker
from training.disk_room import ROOM_SECONDS
from training.errors import PreflightError
from training.job import CHECKPOINTS_FOLDER
from training.run_checkpoints import list_checkpoints
from training.strategies.fsdp2 import flat_mesh, wrap_fsdp2
from training.workers import GROUP_TIMEOUT, Workers


def test_machines_with_unequally_many_workers_agree_on_groups(tmp_path):
    """Each for itself, the workers of the first machine would make groups of three, and those of the second of two."""
    arguments = [{"num_local": number} for number in (4, 4, 4, 4, 2, 2)]
    answers = call_together(tmp_path / "group", "group_size", arguments)
    assert answers == [{"returned": 2}] * 6


def test_groups_within_the_group_wait_as_long_as_it(tmp_path):
    answers = call_together(tmp_path / "group", "hybrid_timeouts", [{"seconds": 2500.0}] * 4)
    assert answers == [{"returned": [2500.0, 2500.0]}] * 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    write_dataset(folder / "dataset", make_rows((9, 16, 23)))
    job = make_job(folder, num_steps=2, checkpoint_every=1, export_at_end=False)
    assert worker.run_worker(job, RecordingContext(0, 1)).is_complete
    return folder


def views_of(folder: Path, own_view: str, seconds: float) -> list[dict[str, object]]:
    """The first worker's is the run's folder, and the second one's is another, as if it was a moment old."""
    (folder / own_view).mkdir(exist_ok=True)
    jobs = [make_job(folder, num_steps=2, num_workers=2, output=folder / name) for name in ("run", own_view)]
    return [{"job": job.model_dump(mode="json"), "seconds": seconds} for job in jobs]


def test_a_worker_that_sees_no_checkpoint_ends_the_resume_of_all(finished, tmp_path):
    answers = call_together(tmp_path / "group", "newest_step", views_of(finished, "empty", 0.0))
    for answer in answers:
        assert answer["raised"].startswith("ResumeError: 1 of 2 workers do not see the checkpoint ")
        assert "step-00000002" in answer["raised"]


def test_a_worker_that_sees_less_looks_again(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    arguments = views_of(tmp_path / "copy", "older", 60.0)
    (tmp_path / "copy" / "older" / CHECKPOINTS_FOLDER).mkdir()
    for checkpoint in list_checkpoints(tmp_path / "copy" / "run"):
        late = tmp_path / "copy" / "older" / CHECKPOINTS_FOLDER / checkpoint.folder.name
        # Whatever the number of the newest is, it is the first worker's.
        shutil.copytree(checkpoint.folder, late)
    shutil.rmtree(tmp_path / "copy" / "run" / CHECKPOINTS_FOLDER / "step-00000002")
    assert call_together(tmp_path / "group", "newest_step", arguments) == [{"returned": 1}] * 2


def test_a_checkpoint_that_only_another_worker_sees_is_none(finished, tmp_path):
    arguments = views_of(finished, "nothing", 60.0)
    answers = call_together(tmp_path / "group", "newest_step", arguments[::-1])
    assert answers == [{"returned": None}] * 2


def test_a_worker_that_fails_alone_waits_for_nobody(tmp_path):
    """A checkpoint is being written meanwhile, which the others would have to finish with it."""
    write_dataset(tmp_path / "dataset", make_rows((9, 16, 23, 30)))
    job = make_job(tmp_path, num_workers=2, strategy="fsdp2", checkpoint_every=1, num_steps=4)
    first, _ = call_together(tmp_path / "group", "failing_run", [{"job": job.model_dump(mode="json")}] * 2)
    assert first == {"raised": "TrainingError: Step 2 could not be recorded."}


def test_workers_wait_longer_for_each_other_than_one_waits_for_room(tmp_path, monkeypatch):
    assert GROUP_TIMEOUT.total_seconds() > ROOM_SECONDS
    job = make_job(tmp_path, num_workers=2)
    job.write(tmp_path / "job.json")
    begun = {}

    class Begun(Exception):
        pass

    def begin(backend: str, **options: object) -> None:
        begun[backend] = options["timeout"]
        raise Begun

    monkeypatch.setattr(dist, "init_process_group", begin)
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Begun):
        worker.main([str(tmp_path / "job.json")])
    assert begun == {"gloo": GROUP_TIMEOUT}


def test_one_worker_does_not_leave_out_the_offload_that_it_was_asked_for(tmp_path):
    alone = Workers(rank=0, size=1, device=torch.device("cuda"))
    job = make_job(tmp_path, strategy="fsdp2", offload="cpu")
    with pytest.raises(PreflightError, match="zero2 or zero3"):
        wrap_fsdp2(torch.nn.Linear(1, 1), job, alone, torch.float32, make_mesh=flat_mesh)
