"""What DeepSpeed compiles survives a process that was killed while it did."""

from __future__ import annotations

import fcntl
import os

import pytest

from training.strategies.compiled_parts import building


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    return tmp_path


def test_the_lock_of_a_killed_build_does_not_block_the_next(folder):
    for part in ("one", "other"):
        (folder / part).mkdir()
        (folder / part / "lock").touch()
    with building("one", "other"):
        assert not list(folder.glob("*/lock"))


def test_processes_of_a_machine_take_turns(folder):
    with building("one"):
        another = os.open(folder / "one" / ".encore-lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(another)
