"""Whether a supervisor lives: the same number is not the same process, and a dead child is dead."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from backend.runs.process.processes import birth_of, end_session, is_alive

SLEEPER = [sys.executable, "-c", "import subprocess, sys; print(flush=True); subprocess.run([sys.executable, '-c', "]
SLEEPER[-1] += "'import time; time.sleep(600)'])"


def test_this_process_lives_and_its_number_alone_says_nothing() -> None:
    birth = birth_of(os.getpid())
    assert is_alive(os.getpid(), birth)
    assert not is_alive(os.getpid(), birth - 100)
    assert not is_alive(None, None)


def test_a_session_ends_with_all_that_is_in_it() -> None:
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


def session_of(process_id: int) -> int | None:
    try:
        return os.getsid(process_id)
    except ProcessLookupError:
        return None
