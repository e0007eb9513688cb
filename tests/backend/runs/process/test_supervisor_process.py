"""Whether a run is looked after: told by a lock, whatever the clock says; its owner ends with all that it started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from backend.runs.errors import RunStateInvalid
from backend.runs.process.supervisor_process import end_owner, end_session, has_owner, start_watchdog
from backend.runs.runs import Runs
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.store.lock import acquire, is_held
from tests.backend.runs.storage.test_records import record
from training.model.owner import Owner

REPOSITORY = Path(__file__).parents[4]
SLEEPER = [sys.executable, "-c", "import subprocess, sys; print(flush=True); subprocess.run([sys.executable, '-c', "]
SLEEPER[-1] += "'import time; time.sleep(600)'])"

OWNER = """
import os, sys, time
from pathlib import Path
from backend.runs.process.supervisor_process import sign
from backend.store.lock import acquire
lock = acquire(Path(sys.argv[1]))
sign(lock)
print(os.getpid(), flush=True)
time.sleep(600)
"""

SECOND_APP = """
import sys
from pathlib import Path
import psutil
from backend.runs.runs import Runs
from backend.store.home import Home
runs = Runs(Home(Path(sys.argv[1])))
print(runs.is_looked_after("one"), runs.reconcile(), runs.get("one").state, psutil.boot_time(), sep="|")
"""


@pytest.fixture
def folder(home: Path) -> RunFolder:
    folder = RunFolder.of(home, "one")
    folder.path.mkdir(parents=True)
    return folder


@contextmanager
def owner_of(folder: RunFolder) -> Iterator[int]:
    """A process that owns the run, in a session of its own; its process id."""
    command = [sys.executable, "-c", OWNER, str(folder.lock)]
    with subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True, stdout=subprocess.PIPE) as owner:
        try:
            yield int(owner.stdout.readline())
        finally:
            owner.kill()


def test_a_run_has_an_owner_while_a_process_holds_its_lock(home: Path, folder: RunFolder) -> None:
    run = record(state=RunState.RUNNING)
    assert not has_owner(run, folder)
    with owner_of(folder) as process_id:
        assert has_owner(run, folder)
        assert acquire(folder.lock) is None
        end_owner(run, folder)
        assert not has_owner(run, folder)
        assert not [p for p in psutil.process_iter() if p.pid == process_id and p.status() != psutil.STATUS_ZOMBIE]


def seen_after_a_step(home: Path, seconds: int) -> tuple[str, ...]:
    """Whether the run is looked after, what was resumed, and its state, for an app on a machine whose clock was set."""
    lines = Path("/proc/stat").read_text().splitlines()
    (boot,) = (int(line.split()[1]) for line in lines if line.startswith("btime"))
    stepped = home / "stat"
    stepped.write_text("\n".join(f"btime {boot + seconds}" if line.startswith("btime") else line for line in lines))
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount --bind "$1" /proc/stat && shift && "$@"']
    try:
        subprocess.run([*unshare, "sh", str(stepped), "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets nobody mount a file")
    done = subprocess.run(
        [*unshare, "sh", str(stepped), sys.executable, "-c", SECOND_APP, str(home)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    looked_after, resumed, state, booted = done.stdout.strip().split("|")
    assert float(booted) == boot + seconds, "the clock did not step"
    return looked_after, resumed, state


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process see another clock than all others")
@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_a_step_of_the_clock_takes_no_run_from_its_owner(home: Path, folder: RunFolder, seconds: int) -> None:
    """A second app on a machine whose clock was set: the kernel then says that it was booted at another time."""
    rows = RunTable(Home(home).database)
    with owner_of(folder) as process_id:
        birth = psutil.Process(process_id).create_time()
        rows.add(record(state=RunState.RUNNING, process_id=process_id, process_started_at=birth))
        assert seen_after_a_step(home, seconds) == ("True", "[]", "running")
        assert is_held(folder.lock)


def test_a_run_has_one_owner_whatever_its_row_says(home: Path, folder: RunFolder) -> None:
    runs, rows = Runs(Home(home)), RunTable(Home(home).database)
    rows.add(record(state=RunState.QUEUED))
    lock = acquire(folder.lock)
    assert lock is not None
    command = [sys.executable, "-m", "backend.runs.process.watchdog", "one", "--home", str(home)]
    second = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert "has an owner already" in second.stderr
    with pytest.raises(RunStateInvalid, match="is queued"):
        runs.resume("one")
    assert runs.get("one").state is RunState.QUEUED
    os.close(lock)


def test_ending_a_session_ends_all_its_processes() -> None:
    with subprocess.Popen(SLEEPER, start_new_session=True, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        leader = Owner.parse(f"{Owner.this_process().host}.{child.pid}-{Owner.this_process().birth[:8]}7")
        end_session(leader)  # another process of that number, long ago
        assert child.poll() is None
        end_session(Owner.parse(leader.tag.replace(leader.birth, "0" * 8 + "7")))  # of an earlier boot
        assert child.poll() is None
        end_session(Owner.parse(f"{leader.host}.{child.pid}"))
    # Zombies count as ended: where nobody reaps orphans, they stay.
    assert not [
        process
        for process in psutil.process_iter(["status"])
        if session_of(process.pid) == child.pid and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def test_a_watchdog_that_has_ended_leaves_nothing_behind(
    tmp_path: Path, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("true"))
    lock = acquire(folder.lock)
    process_id = start_watchdog("one", tmp_path, folder, lock)
    os.close(lock)
    give_up = time.monotonic() + 60
    while psutil.pid_exists(process_id):
        assert time.monotonic() < give_up, psutil.Process(process_id).status()
        time.sleep(0.01)
    assert not has_owner(record(), folder)


def session_of(process_id: int) -> int | None:
    try:
        return os.getsid(process_id)
    except ProcessLookupError:
        return None
