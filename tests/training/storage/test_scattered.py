"""Two machines that share nothing but a storage: processes with a folder and a cache of their own each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.training.finetuning import REPOSITORY, make_job, make_rows, write_dataset
from tests.training.storage.machines import machine
from training.run_checkpoints import read_checkpoint, require_intact
from training.storage.folders import get_folder, list_folders
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.stored_inputs import put_datasets

NUM_MACHINES, NUM_STEPS, CHECKPOINT_EVERY = 2, 30, 5
CHECKPOINTS = "runs/run/checkpoints"
DEADLINE_SECONDS = 240.0


def write_job(folder: Path, rank: int) -> None:
    own = machine(folder, rank)
    own.mkdir(exist_ok=True)
    job = make_job(
        own,
        # The same on every machine, and only on the first one there.
        dataset=machine(folder, 0) / "dataset",
        num_steps=NUM_STEPS,
        checkpoint_every=CHECKPOINT_EVERY,
        strategy="fsdp2",
        export_at_end=False,
    )
    job.write(own / "job.json")


def start(folder: Path, number: int) -> None:
    """Have the machines started for the first or the second time."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "go.part").write_text(str(port))
    (folder / "go.part").rename(folder / f"go-{number}")


def wait_for(folder: Path, what: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + DEADLINE_SECONDS
    while not what():
        told = [path.read_text() for path in folder.glob("machine-*/output")]
        assert time.monotonic() < give_up_at, told
        time.sleep(0.02)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[ObjectStore]:
    """Two of them, which start when they are told to; the storage is all that they share."""
    (tmp_path / "shared").mkdir()
    store = ObjectStore(StorageLocation("file", str(tmp_path / "shared")))
    for rank in range(NUM_MACHINES):
        write_job(tmp_path, rank)
    command = [sys.executable, "-m", "tests.training.storage.machines", str(tmp_path), str(store.location)]
    with subprocess.Popen(
        [*command, str(NUM_MACHINES)], cwd=REPOSITORY, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as parent:
        try:
            yield store
        finally:
            parent.kill()


def losses_of(folder: Path) -> dict[int, float]:
    lines = (machine(folder, 0) / "run" / "log.jsonl").read_text().splitlines()
    return {line["step"]: line["talker_loss"] for line in map(json.loads, lines)}


def test_machines_without_a_common_folder_train_and_continue_after_all_of_them_are_lost(
    machines: ObjectStore, tmp_path: Path
) -> None:
    store = machines
    dataset = write_dataset(machine(tmp_path, 0) / "dataset", make_rows((9, 12, 8)))
    put_datasets(store, "run", make_job(machine(tmp_path, 0)))
    dataset.rename(tmp_path / "away")

    start(tmp_path, 1)
    wait_for(tmp_path, lambda: list_folders(store, CHECKPOINTS) or (tmp_path / "ended-1").exists())
    for process in (tmp_path / "pids-1").read_text().split():
        os.kill(int(process), signal.SIGKILL)
    wait_for(tmp_path, (tmp_path / "ended-1").is_file)
    assert (tmp_path / "ended-1").read_text() == f"{-signal.SIGKILL} {-signal.SIGKILL}"
    before = losses_of(tmp_path)
    for rank in range(NUM_MACHINES):
        shutil.rmtree(machine(tmp_path, rank) / "run", ignore_errors=True)
        shutil.rmtree(machine(tmp_path, rank) / "cache")
    begun_at = int(list_folders(store, CHECKPOINTS)[-1].rpartition("-")[2])

    start(tmp_path, 2)
    wait_for(tmp_path, (tmp_path / "ended-2").is_file)
    assert (tmp_path / "ended-2").read_text() == "0 0", (machine(tmp_path, 0) / "output").read_text()
    after = losses_of(tmp_path)
    assert min(after) == begun_at + 1
    assert max(after) == NUM_STEPS
    assert list_folders(store, CHECKPOINTS)[-1] == f"step-{NUM_STEPS:08d}"
    assert store.sizes("runs/run/parts") == {}

    assert get_folder(store, f"{CHECKPOINTS}/step-{NUM_STEPS:08d}", tmp_path / "whole") is not None
    require_intact(read_checkpoint(tmp_path / "whole"))
    # What each machine had has done what it was for.
    assert not list(tmp_path.glob("machine-*/cache/**/*.distcp"))
    for step in before.keys() & after.keys():
        assert before[step] == pytest.approx(after[step], rel=1e-6)
