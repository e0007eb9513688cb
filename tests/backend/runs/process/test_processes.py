"""Whether a supervisor lives: the same number is not the same process, and a dead child is dead."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from backend.runs.process.processes import birth_of, end_session, is_alive, start_supervisor

SLEEPER = [sys.executable, "-c", "import subprocess, sys; print(flush=True); subprocess.run([sys.executable, '-c', "]
SLEEPER[-1] += "'import time; time.sleep(600)'])"


def test_a_process_is_known_by_its_number_and_its_birth() -> None:
    birth = birth_of(os.getpid())
    assert is_alive(os.getpid(), birth)
    assert not is_alive(os.getpid(), birth - 100)
    assert not is_alive(None, None)


def test_ending_a_session_ends_all_its_processes() -> None:
    with subprocess.Popen(SLEEPER, start_new_session=True, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        birth = birth_of(child.pid)
        assert is_alive(child.pid, birth)
        end_session(child.pid, birth - 100)  # another process of that number, long ago
        assert is_alive(child.pid, birth)
        end_session(child.pid, birth)
        # Not reaped yet: dead all the same.
        assert not is_alive(child.pid, birth)
    # Zombies count as ended: where nobody reaps orphans, they stay.
    assert not [
        process
        for process in psutil.process_iter(["status"])
        if session_of(process.pid) == child.pid and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def test_a_supervisor_that_has_ended_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("true"))
    process_id, birth = start_supervisor("run", tmp_path, tmp_path / "log.txt")
    give_up = time.monotonic() + 60
    while psutil.pid_exists(process_id):
        assert time.monotonic() < give_up, psutil.Process(process_id).status()
        time.sleep(0.01)
    assert not is_alive(process_id, birth)


def session_of(process_id: int) -> int | None:
    try:
        return os.getsid(process_id)
    except ProcessLookupError:
        return None
