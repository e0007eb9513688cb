"""The process that owns a run and outlives the app: it starts the supervisor, and again where no progress is made.

python -m backend.runs.process.watchdog RUN --home HOME

It knows nothing of Ray, which may take the supervisor down with it or never answer again. It holds the run's lock, so
that a run has one owner whatever anyone believes.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import psutil

from backend.errors import EncoreError
from backend.runs.planning.launch import LaunchPlan
from backend.runs.process.disk_guard import DiskGuard
from backend.runs.process.supervisor_process import end_session, members_of, sign
from backend.runs.storage.control import Control
from backend.runs.storage.records import RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import STOPPED, RunState
from backend.store.errors import StoreError
from backend.store.home import Home
from backend.store.lock import acquire
from training.model.owner import Owner

DEADLINES: Mapping[RunState, float] = MappingProxyType(
    {
        # The supervisor's heartbeat, every three seconds.
        RunState.QUEUED: 300.0,
        # Ray, driver and workers start, the model is loaded, a step is done; minutes each on a crowded machine.
        RunState.STARTING: 900.0,
        # A step, or something more of a checkpoint on the disk.
        RunState.RUNNING: 3600.0,
        # A take of a checkpoint, or something more of the export.
        RunState.EVALUATING: 3600.0,
    }
)
"""How many seconds a run may stay in a state without a sign of progress."""

CLUSTER_FACTOR = 16
"""On a cluster a run may wait for machines for hours."""

RAY_LOST_SECONDS = 30.0
"""How long a Ray of the run's own may be gone; one that starts too slowly is started again by the supervisor."""

RAY_LOST_STATUS = 3
"""What a supervisor exits with that found its Ray gone and left the run to be started again."""

POLL_SECONDS = 2.0
_RAY_PROCESSES = ("raylet", "gcs_server")
_logger = logging.getLogger(__name__)


class Watchdog:
    """Sees one run through, from the queue to its end, with as many supervisors as that takes."""

    def __init__(
        self,
        home: Home,
        run_id: str,
        *,
        command: Sequence[str] | None = None,
        deadlines: Mapping[RunState, float] = DEADLINES,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """Look after `run_id`, whose lock this process holds; `command` starts a supervisor."""
        self._rows, self._run_id, self._folder = RunTable(home.database), run_id, RunFolder.of(home.folder, run_id)
        module = [sys.executable, "-m", "backend.runs.process.supervisor", run_id, "--home", str(home.folder)]
        self._command = list(command or module)
        DiskGuard(home.database, run_id, self._folder)
        self._deadlines, self._poll_seconds = deadlines, poll_seconds
        self._is_on_cluster = _is_on_cluster(self._folder)

    def run(self) -> RunState:
        """Do it all; however supervisors end, the run's row says how the run did."""
        try:
            return self._run()
        finally:
            self._folder.reserve.unlink(missing_ok=True)

    def _run(self) -> RunState:
        steps_at_restart: int | None = None
        while True:
            self._rows.change(self._run_id, process_id=os.getpid())
            problem = self._watch(subprocess.Popen([*self._command, "--watchdog", str(os.getpid())]))
            # Whatever Ray has left: the next one must find the machine free.
            end_session(Owner.this_process(), spare=os.getpid())
            run = self._rows.get(self._run_id)
            if problem is None or not run.state.is_active:
                return run.state
            if (reason := Control.read(self._folder.control).stop) is not None:
                return self._rows.move(self._run_id, *STOPPED[reason]).state
            if run.step == steps_at_restart:
                sentence = f"{problem} It was started again, and came no further. Its log says why; "
                ending = "correct that and resume: it continues from the last checkpoint."
                return self._rows.move(self._run_id, RunState.FAILED, sentence + ending).state
            steps_at_restart = run.step
            self._rows.add_event(self._run_id, f"{problem} It is started again.")
            self._rows.queue_again(self._run_id, f"{problem} It is started again.")

    def _watch(self, supervisor: subprocess.Popen[bytes]) -> str | None:
        """Wait until a supervisor has ended or must be; tells in a sentence what was wrong, None if nothing was."""
        newest: object = None
        since = time.monotonic()
        ray = _OwnRay()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                supervisor.wait(self._poll_seconds)
            try:
                run = self._rows.get(self._run_id)
            except StoreError:  # a full disk, or another process is busy for long: looked at again
                continue
            if supervisor.returncode is not None:
                return self._why_ended(supervisor.returncode) if run.state.is_active else None
            if not run.state.is_active:
                # It gives Ray the time to end.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    supervisor.wait(RAY_LOST_SECONDS)
                return None
            if (signs := self._signs(run)) != newest:
                newest, since = signs, time.monotonic()
            elif time.monotonic() - since > self._deadline(run.state):
                return f"The run made no progress for {_duration(self._deadline(run.state))} while it was {run.state}."
            if run.state is not RunState.QUEUED and not self._is_on_cluster and ray.is_lost():
                return "Ray, which the run started for itself, was lost."

    def _why_ended(self, status: int) -> str:
        if status == RAY_LOST_STATUS:
            return "Ray, which the run started for itself, was lost."
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"The process that supervises the run {how}."

    def _deadline(self, state: RunState) -> float:
        return self._deadlines[state] * (CLUSTER_FACTOR if self._is_on_cluster else 1)

    def _signs(self, run: RunRecord) -> object:
        """What changes whenever the run gets on."""
        if run.state is RunState.QUEUED:
            return run.state, run.attempt, run.heartbeat_at
        return run.state, run.attempt, _files_in(self._folder)


class _OwnRay:
    """The Ray of this session: which parts of it there have been, and since when one is gone."""

    def __init__(self) -> None:
        # What earlier attempts left stays dead for ever where nothing reaps it.
        self._earlier = set(self._find())
        self._processes: list[psutil.Process] = []
        self._seen: set[str] = set()
        self._gone_since: float | None = None

    def is_lost(self) -> bool:
        """Whether a part of it was there and has been gone for a while."""
        if len(self._processes) == len(_RAY_PROCESSES) and all(map(_runs, self._processes)):
            return False
        found = {process: _name(process) for process in self._find() if process not in self._earlier}
        # Dead ones count: one may have ended before it was looked at for the first time.
        self._seen.update(found.values())
        self._processes = [process for process in found if _runs(process)]
        if self._seen == {found[process] for process in self._processes}:
            self._gone_since = None
            return False
        self._gone_since = self._gone_since or time.monotonic()
        return time.monotonic() - self._gone_since > RAY_LOST_SECONDS

    @staticmethod
    def _find() -> list[psutil.Process]:
        """Ray's own processes of this session, dead ones too."""
        return [process for process in members_of(os.getsid(0), dead=True) if _name(process) in _RAY_PROCESSES]


def _files_in(folder: RunFolder) -> tuple[int, int, int]:
    """Number, bytes and newest change of what a run writes; without logs, in which Ray says that it waits."""
    count = num_bytes = newest = 0
    for place in (folder.metrics, folder.faults, folder.checkpoints, folder.takes, folder.evaluating, folder.export):
        for parent, _, names in os.walk(place):
            for name in names:
                with contextlib.suppress(OSError):
                    status = os.stat(os.path.join(parent, name))
                    count, num_bytes = count + 1, num_bytes + status.st_size
                    newest = max(newest, status.st_mtime_ns)
    return count, num_bytes, newest


def _is_on_cluster(folder: RunFolder) -> bool:
    try:
        return LaunchPlan.read(folder.launch).machine.address is not None
    except EncoreError:
        return False  # the supervisor says what is wrong with it


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when the run is done or was stopped on request, 2 where another process owns it."""
    parser = argparse.ArgumentParser(prog="python -m backend.runs.process.watchdog", description=__doc__)
    parser.add_argument("run", help="id of the run")
    parser.add_argument("--home", type=Path, required=True, help="ENCORE_HOME")
    parser.add_argument("--lock", type=int, help="descriptor that holds the run's lock; acquired here without it")
    parsed = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    folder = RunFolder.of(parsed.home, parsed.run)
    lock = parsed.lock if parsed.lock is not None else acquire(folder.lock)
    if lock is None:
        _logger.error("run %s has an owner already", parsed.run)
        return 2
    # The lock must end with this process, and not live on in one that it starts.
    os.set_inheritable(lock, False)
    sign(lock)
    signal.signal(signal.SIGTERM, lambda number, frame: folder.ask_to_stop("interrupt"))
    return 1 if Watchdog(Home(parsed.home), parsed.run).run() is RunState.FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
