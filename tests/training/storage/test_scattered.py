"""Two machines that share nothing but a storage: processes with a folder and a cache of their own each."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training.finetuning import REPOSITORY, make_job, make_rows, write_dataset
from training.run_checkpoints import read_checkpoint, require_intact
from training.storage.folders import get_folder, list_folders
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.stored_inputs import put_datasets

NUM_MACHINES, NUM_STEPS, CHECKPOINT_EVERY = 2, 24, 4
CHECKPOINTS = "runs/run/checkpoints"
DEADLINE_SECONDS = 240.0


def machine(folder: Path, rank: int) -> Path:
    return folder / f"machine-{rank}"


def start(folder: Path, store: ObjectStore, num_machines: int) -> list[subprocess.Popen[bytes]]:
    """One worker on each machine, as torchrun would start it there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(num_machines):
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
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(num_machines),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "XDG_CACHE_HOME": str(own / "cache"),
        }
        command = [sys.executable, "-m", "training.worker", str(own / "job.json"), "--storage", str(store.location)]
        with (own / "output").open("ab") as output:
            processes.append(
                subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=output, stderr=subprocess.STDOUT)
            )
    return processes


def losses_of(folder: Path) -> dict[int, float]:
    lines = (machine(folder, 0) / "run" / "log.jsonl").read_text().splitlines()
    return {line["step"]: line["talker_loss"] for line in map(json.loads, lines)}


def test_machines_without_a_common_folder_train_and_continue_after_all_of_them_are_lost(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    store = ObjectStore(StorageLocation("file", str(tmp_path / "shared")))
    dataset = write_dataset(machine(tmp_path, 0) / "dataset", make_rows((9, 12, 8)))
    put_datasets(store, "run", make_job(machine(tmp_path, 0)))
    dataset.rename(tmp_path / "away")

    first = start(tmp_path, store, NUM_MACHINES)
    give_up_at = time.monotonic() + DEADLINE_SECONDS
    while len(list_folders(store, CHECKPOINTS)) < 1:
        assert all(process.poll() is None for process in first), (machine(tmp_path, 0) / "output").read_text()
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    for process in first:
        process.kill()
        process.wait()
    before = losses_of(tmp_path)
    for rank in range(NUM_MACHINES):
        shutil.rmtree(machine(tmp_path, rank) / "run", ignore_errors=True)
        shutil.rmtree(machine(tmp_path, rank) / "cache")
    begun_at = int(list_folders(store, CHECKPOINTS)[-1].rpartition("-")[2])

    for process in start(tmp_path, store, NUM_MACHINES):
        said = (machine(tmp_path, 0) / "output").read_text()
        assert process.wait(timeout=DEADLINE_SECONDS) == 0, said + (machine(tmp_path, 1) / "output").read_text()
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
