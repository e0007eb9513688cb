"""What killed processes left is swept once its owner is gone, and what a living one is working on is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backend.store.home import Home
from backend.store.leftovers import sweep_leftovers
from backend.takes.takes import Takes
from training.model.owner import Owner, working_name

REPOSITORY = Path(__file__).parents[3]

# A process in the middle of a take, an artefact, an archive and a voice; it is killed when it has said so.
AT_WORK = """
import sys, time
from pathlib import Path
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.sources.find import open_sources
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.store.artifacts import Artifacts
from backend.store.home import Home
from backend.takes.takes import Takes
from training.model.checkpoint.atomic_folder import create_folder
from training.model.owner import temporary_folder
home = Home(Path(sys.argv[1]))
job = BuildJob.parse("ann", [home.folder / "one.wav"], model="mini", whisper="none", num_actors=0)
with (
    Takes(home).incoming() as take,
    Artifacts(home.folder).incoming(".wav") as artifact,
    open_sources(job, DatasetWorkspace(home.folder)),
    create_folder(home.folder / "voices" / ("7f" * 16)) as voice,
    temporary_folder(),
):
    for file in (take, artifact, voice / "reference.wav"):
        file.write_bytes(b"half")
    print(flush=True)
    time.sleep(600)
"""


def left_in(home: Path) -> list[str]:
    folders = ("temporary", "takes/incoming", "artifacts/incoming", "cache/unpacked", "voices")
    return sorted(f"{folder}/{path.name}" for folder in folders for path in (home / folder).glob("*"))


def test_leftovers_are_swept_once_their_process_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "one.wav").write_bytes(b"RIFF")
    command = [sys.executable, "-c", AT_WORK, str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        before = left_in(tmp_path)
        assert len(before) == 5
        sweep_leftovers(tmp_path)
        assert left_in(tmp_path) == before, "a living process lost what it is working on"
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert left_in(tmp_path) == before
    sweep_leftovers(tmp_path)
    assert left_in(tmp_path) == []


def test_what_an_earlier_version_left_is_swept_after_a_day(tmp_path: Path) -> None:
    for name in ("takes/incoming/0123.wav", "artifacts/incoming/4567.wav", "cache/unpacked/tmpabcd/inside"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    sweep_leftovers(tmp_path)
    assert len(left_in(tmp_path)) == 3
    for path in tmp_path.glob("*/*/*"):
        os.utime(path, (0, 0))
    sweep_leftovers(tmp_path)
    assert left_in(tmp_path) == []


def test_a_clock_that_is_set_takes_nothing_from_a_living_process(tmp_path: Path) -> None:
    with Takes(Home(tmp_path)).incoming() as take:
        take.write_bytes(b"half")
        os.utime(take, (0, 0))
        sweep_leftovers(tmp_path)
        assert take.is_file()


def test_the_tag_of_a_working_name_is_its_owners() -> None:
    assert working_name(".wav").startswith(f"{Owner.this_process().tag}.")
