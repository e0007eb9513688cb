"""No run stays in a phase for ever: one that makes no progress, or loses its process, is started again once."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from backend.runs.process.supervisor_process import members_of
from backend.runs.process.watchdog import DEADLINES
from backend.runs.runs import Runs
from backend.runs.storage.control import Control
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import ACTIVE, RunState
from backend.store.home import Home
from tests.backend.runs.storage.test_records import record

REPOSITORY = Path(__file__).parents[4]

# A process that looks after the run "one" with a supervisor of the test's own, in a session of its own.
WATCHDOG = """
import sys
from pathlib import Path
from backend.runs.process import watchdog
from backend.runs.process.supervisor_process import sign
from backend.runs.process.watchdog import Watchdog
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.states import ACTIVE
from backend.store.home import Home
from backend.store.lock import acquire
home = Path(sys.argv[1])
sign(acquire(RunFolder.of(home, "one").lock))
command = [sys.executable, "-c", sys.argv[2], str(home)]
SECONDS = 4.0
watchdog.RAY_LOST_SECONDS = 2.0
deadlines = {state: SECONDS if state == sys.argv[3] else 150.0 for state in ACTIVE}
Watchdog(Home(home), "one", command=command, deadlines=deadlines, poll_seconds=0.1).run()
"""

# What a supervisor does with the row, up to a state in which it then hangs with a process of its own.
SUPERVISOR = """
import os, signal, subprocess, sys, time
from pathlib import Path
from backend.runs.storage.control import LineWriter
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.database import Database
home = Path(sys.argv[1])
rows, folder = RunTable(Database(home)), RunFolder.of(home, "one")
def go_to(state):
    for step in (RunState.STARTING, RunState.RUNNING, RunState.EVALUATING, RunState.DONE):
        rows.claim("one", alone=False, has_owner=None) if step is RunState.STARTING else rows.move("one", step, "")
        if step is state:
            break
def start_as(name):
    script = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {name!r}.encode()); print(flush=True); time.sleep(600)"
    started = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    started.stdout.readline()
    return started
def hang():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])
"""


@pytest.fixture
def rows(home: Path) -> RunTable:
    rows = RunTable(Home(home).database)
    rows.add(record())
    RunFolder.of(home, "one").path.mkdir(parents=True)
    return rows


def look_after(home: Path, behaviour: str, state: RunState | None = None) -> None:
    """Until the run is over; `state` is that of which the deadline is short."""
    command = [sys.executable, "-c", WATCHDOG, str(home), SUPERVISOR + behaviour, str(state)]
    with psutil.Popen(command, cwd=REPOSITORY, start_new_session=True) as watchdog:
        watchdog.wait(timeout=200)
    assert members_of(watchdog.pid) == [], "a process is left"


def test_every_phase_has_a_deadline() -> None:
    assert DEADLINES.keys() == ACTIVE


@pytest.mark.parametrize("state", [RunState.STARTING, RunState.RUNNING, RunState.EVALUATING])
def test_a_run_without_progress_is_started_again_once_and_then_fails(
    home: Path, rows: RunTable, state: RunState
) -> None:
    look_after(home, f"go_to(RunState({str(state)!r})); hang()", state)
    run = rows.get("one")
    problem = f"The run made no progress for 4 seconds while it was {state}."
    assert (run.state, run.attempt) == (RunState.FAILED, 2)
    assert run.message.startswith(f"{problem} It was started again, and came no further.")
    assert [event.sentence for event in rows.events("one")] == [f"{problem} It is started again."]
    assert run.state.can_resume


def test_a_supervisor_that_hangs_in_the_queue_is_replaced(home: Path, rows: RunTable) -> None:
    look_after(home, "hang()", RunState.QUEUED)
    assert "while it was queued" in rows.get("one").message


def test_a_run_that_gets_on_is_left_alone(home: Path, rows: RunTable) -> None:
    """Slower than the deadline in all, but never without a sign for so long."""
    slowly = """
go_to(RunState.RUNNING)
lines = LineWriter(folder.metrics, 1)
for step in range(8):
    lines.write({"step": step + 1})
    time.sleep(0.5)
rows.move("one", RunState.EVALUATING, "")
rows.move("one", RunState.DONE, "Done.")
"""
    look_after(home, slowly, RunState.RUNNING)
    assert (rows.get("one").state, rows.get("one").attempt) == (RunState.DONE, 1)
    assert list(rows.events("one")) == []


def test_a_supervisor_that_is_killed_is_replaced_and_the_run_goes_on(home: Path, rows: RunTable) -> None:
    first = "go_to(RunState.STARTING); os.kill(os.getpid(), signal.SIGKILL)"
    look_after(home, f"go_to(RunState.DONE) if rows.get('one').attempt else [{first!r}, exec({first!r})]")
    run = rows.get("one")
    assert (run.state, run.attempt) == (RunState.DONE, 2)
    (event,) = rows.events("one")
    assert event.sentence == ("The process that supervises the run was ended by signal 9. It is started again.")


@pytest.mark.skipif(sys.platform != "linux", reason="names of processes are changed as Linux does it")
def test_a_ray_of_which_a_part_has_ended_unseen_is_started_again(home: Path, rows: RunTable) -> None:
    """Its node may end before the watchdog looks for the first time, and the supervisor waits for it for ever."""
    first = "go_to(RunState.STARTING); node = start_as('raylet'); node.kill(); start_as('gcs_server'); hang()"
    look_after(home, f"go_to(RunState.DONE) if rows.get('one').attempt else exec({first!r})")
    run = rows.get("one")
    assert (run.state, run.attempt) == (RunState.DONE, 2)
    (event,) = rows.events("one")
    assert event.sentence == "Ray, which the run started for itself, was lost. It is started again."


@pytest.mark.skipif(sys.platform != "linux", reason="names of processes are changed as Linux does it")
def test_a_ray_that_runs_is_left_alone_whatever_is_left_of_one_before(home: Path, rows: RunTable) -> None:
    """Also for longer than one may be gone."""
    start = "go_to(RunState.STARTING); start_as('raylet'), start_as('gcs_server');"
    finish = "rows.move('one', RunState.EVALUATING, ''); rows.move('one', RunState.DONE, 'Done.')"
    wait = "time.sleep(5); rows.move('one', RunState.RUNNING, '')"
    attempts = [f"{start} os.kill(os.getpid(), signal.SIGKILL)", f"{start} {wait}; {finish}"]
    look_after(home, f"exec({attempts!r}[rows.get('one').attempt])")
    run = rows.get("one")
    assert (run.state, run.attempt) == (RunState.DONE, 2)
    (event,) = rows.events("one")
    assert event.sentence == "The process that supervises the run was ended by signal 9. It is started again."


def test_as_long_as_steps_are_done_in_between_it_is_started_again(home: Path, rows: RunTable) -> None:
    behaviour = """
run = rows.get("one")
go_to(RunState.DONE if run.attempt == 3 else RunState.RUNNING)
if run.attempt < 3:
    rows.change("one", step=run.attempt + 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    look_after(home, behaviour)
    assert (rows.get("one").state, rows.get("one").attempt) == (RunState.DONE, 4)


def test_a_run_that_is_to_stop_is_not_started_again(home: Path, rows: RunTable) -> None:
    Control(attempt=1, stop="cancel").write(RunFolder.of(home, "one").control)
    look_after(home, "go_to(RunState.STARTING); hang()", RunState.STARTING)
    assert rows.get("one").state is RunState.CANCELLED


def test_damaged_files_of_a_run_are_said_and_it_fails(home: Path, rows: RunTable) -> None:
    """With the real processes: nothing is left that says that it waits."""
    folder = RunFolder.of(home, "one")
    folder.job.write_text('{"voice": "Ann", ')
    folder.launch.write_text('{"run_id": "one", "machine": {"num_cpus": 1, "num_gpus": 0}, "max_workers": 1}')
    rows.move("one", RunState.INTERRUPTED, "")
    runs = Runs(Home(home))
    runs.resume("one")
    give_up = time.monotonic() + 200
    while runs.get("one").state.is_active or runs.is_looked_after("one"):
        assert time.monotonic() < give_up, runs.log("one")
        time.sleep(0.1)
    run = runs.get("one")
    assert run.state is RunState.FAILED
    assert "job.json" in run.message
    assert "Traceback" not in runs.log("one")
    folder.launch.write_bytes(b"\x00\xff" * 40)
    runs.resume("one")
    while runs.get("one").state.is_active or runs.is_looked_after("one"):
        assert time.monotonic() < give_up, runs.log("one")
        time.sleep(0.1)
    assert "launch.json" in runs.get("one").message
