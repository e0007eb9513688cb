"""The page's temporary folder: private, gone afterwards, and never swept away under a living process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from backend.store.errors import StoreError
from training.model.project import PROJECT_FOLDER
from ui.web.temporary import temporary_folder, unguessable_path

HOLD_A_FOLDER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from ui.web.temporary import temporary_folder
    with temporary_folder(Path(sys.argv[1])) as folder:
        (folder / "voice.wav").write_bytes(b"x")
        print(folder, flush=True)
        sys.stdin.read()
""")


@pytest.fixture
def other_process(tmp_path):
    command = [sys.executable, "-c", HOLD_A_FOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT_FOLDER, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_it_is_private_and_gone_afterwards(tmp_path):
    with temporary_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "sub").mkdir()
        (folder / "sub" / "voice.wav").write_bytes(b"x")
    assert not folder.exists()


def test_what_a_killed_process_left_is_swept(tmp_path, other_process):
    process, left = other_process
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (left / "voice.wav").exists()
    with temporary_folder(tmp_path):
        assert not left.exists()


def test_what_a_living_process_uses_is_left_alone(tmp_path, other_process):
    _, used = other_process
    with temporary_folder(tmp_path):
        assert (used / "voice.wav").exists()


def test_other_files_beside_it_are_left_alone(tmp_path):
    for name in ("page-notes.txt", "something"):
        (tmp_path / "temporary" / name).mkdir(parents=True)
    with temporary_folder(tmp_path):
        assert len(list((tmp_path / "temporary").iterdir())) == 3


def test_without_a_home_it_is_in_a_folder_of_this_user(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_folder(None) as folder:
        assert folder.parent == tmp_path / f"encore-{os.getuid()}"
        assert folder.parent.stat().st_mode & 0o077 == 0


def test_a_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trap = tmp_path / "trap"
    trap.mkdir(mode=0o700)
    (tmp_path / f"encore-{os.getuid()}").symlink_to(trap)
    with temporary_folder(None) as folder:
        assert not folder.is_relative_to(trap)
        assert folder.parent.stat().st_mode & 0o077 == 0


def test_addresses_of_files_cannot_be_guessed(tmp_path):
    paths = {unguessable_path(tmp_path, "take-1.wav") for _ in range(50)}
    assert len(paths) == 50
    assert all(len(path.parent.name) >= 20 and path.name == "take-1.wav" for path in paths)


def test_a_home_that_cannot_be_written_is_said():
    # A folder in which root cannot write either.
    with pytest.raises(StoreError, match=r"cannot be written: .* Set ENCORE_HOME to another folder"):
        temporary_folder(Path("/proc/no-such-home")).__enter__()
