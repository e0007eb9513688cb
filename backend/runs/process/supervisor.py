"""The process that sees one attempt of a run through: it starts Ray, watches and evaluates; started by the watchdog.

python -m backend.runs.process.supervisor RUN --home HOME
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from backend.cluster.connect import (
    FINE_TUNE,
    check_size,
    connect,
    has_gpus,
    pin_to_this_machine,
    release_placement_groups,
)
from backend.errors import EncoreError
from backend.provenance.signing import FileSigner
from backend.runs.planning.launch import LaunchPlan
from backend.runs.process.checkpoint_mirror import CheckpointMirror
from backend.runs.process.conclude_run import conclude
from backend.runs.process.disk_guard import MIN_BYTES, DiskGuard
from backend.runs.process.evaluation_queue import EvaluationQueue
from backend.runs.process.monitor import RunMonitor, register_checkpoints
from backend.runs.process.supervisor_process import has_owner
from backend.runs.process.watchdog import RAY_LOST_STATUS
from backend.runs.storage.control import Control, StopReason
from backend.runs.storage.records import RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import STOPPED, RunState
from backend.settings import Settings
from backend.store.home import Home
from training.job import FineTuneJob
from training.run_checkpoints import fetch_newer
from training.storage.objects import ObjectStore, open_store
from training.stored_checkpoints import StoredCheckpoints

POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 3.0
WRITTEN_SECONDS = 2.0
_PR_SET_PDEATHSIG = 1  # from Linux's prctl.h; Python does not define it
GRACE_SECONDS: dict[StopReason, float] = {"cancel": 5.0, "interrupt": 5.0, "pause": 120.0}
"""How long workers may take to finish their step and save; a cancel has to free the machine within ten seconds."""

_TOO_MANY_FAILURES = (
    "The workers failed more often than the run allows. Its log says why; "
    "correct that and resume: it continues from the last checkpoint."
)
_logger = logging.getLogger(__name__)


class _Stopped(Exception):
    """The person wants the run to stop; carries why."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


class RayLost(Exception):
    """The Ray of this machine that a run had started for itself is gone; the watchdog starts another supervisor."""


class _DriverLost(Exception):
    """The actor that holds Ray Train is gone, and the workers with it."""


class Supervisor:
    """Sees one attempt of a run through, from the queue to its end."""

    def __init__(self, home: Home, run_id: str) -> None:
        self._home, self._run_id = home, run_id
        self._rows = RunTable(home.database)
        self._folder = RunFolder.of(home.folder, run_id)
        self._guard = DiskGuard(home.database, run_id, self._folder, lambda: self._stop_wanted() is None)
        self._last_beat = 0.0
        self._empty_since: float | None = None
        self._ray: list[psutil.Process] = []
        self._store: ObjectStore | None = None
        self._mirror: CheckpointMirror | None = None

    def run(self) -> RunState:
        """Do it all; whatever happens, the run's row says how it ended, before Ray is given the time to end.

        Raises:
            RayLost: of the Ray that it had started; the row is as it was.
        """
        with ExitStack() as connection:
            state = self._run(connection)
            if state.is_active:
                raise RayLost
            return state

    def _run(self, connection: ExitStack) -> RunState:
        try:
            self._launch = LaunchPlan.read(self._folder.launch)
            # From the run's own copy: the dataset itself may be edited and deleted meanwhile.
            job = FineTuneJob.read(self._folder.job)
            self._job = (
                job.with_datasets(self._folder.datasets(len(job.speakers))) if self._folder.dataset.is_dir() else job
            )
            self._wait_for_turn()
            self._work(connection)
            return RunState.DONE
        except _Stopped as stopped:
            state, message = STOPPED[stopped.reason]
            return self._end(state, message)
        except EncoreError as error:
            if self._has_lost_ray():
                return self._rows.get(self._run_id).state
            return self._end(RunState.FAILED, str(error))
        except Exception:
            # The edge of the job: whatever it was, the row must not say that it is running.
            _logger.exception("run %s failed", self._run_id)
            if self._has_lost_ray():
                return self._rows.get(self._run_id).state
            return self._end(RunState.FAILED, "It failed because of a fault in Encore. Its log has the details.")

    def _work(self, connection: ExitStack) -> None:
        settings = Settings.from_environment()
        self._store = open_store(settings.storage)
        monitor = self._watch()
        self._folder.problem.unlink(missing_ok=True)
        before = set(psutil.Process().children())
        connection.enter_context(connect(FINE_TUNE, self._launch.machine, home=self._home.folder))
        if self._launch.machine.address is None:
            self._ray = [child for child in psutil.Process().children() if child not in before]
        self._stop_if_wanted()
        fewest = self._launch.smallest_world_size
        if self._launch.machine.address is not None and self._job.device == "auto" and has_gpus(fewest):
            self._launch = self._launch.model_copy(update={"use_gpu": True})
        check_size(fewest, fewest if self._launch.use_gpu else 0)
        signer = FileSigner(self._home.folder, settings.signing_cert, settings.signing_key)
        pinned = self._is_spread
        evaluation = EvaluationQueue(self._rows, self._run_id, self._folder, self._launch, signer, is_pinned=pinned)
        run = self._rows.get(self._run_id)
        if run.step < run.num_steps:
            self._train_to_the_end(monitor, evaluation)
        else:
            self._rows.move(self._run_id, RunState.RUNNING, "All steps are done.")
        self._rows.move(self._run_id, RunState.EVALUATING, "Evaluating the checkpoints.")
        while evaluation.advance():
            self._stop_if_wanted()
            self._beat()
            time.sleep(POLL_SECONDS)
        # Two exports in half precision, which are as large as the base model each, and once more as they are replaced.
        size = sum(path.stat().st_size for path in self._job.base_model.glob("**/*") if path.is_file())
        self._guard.wait(MIN_BYTES + 2 * size, "the export")
        self._stop_if_wanted()
        conclude(self._home, self._run_id, self._store)

    def _wait_for_turn(self) -> None:
        """One run at a time on this machine; a cluster's own scheduler sees to the rest."""
        alone = self._launch.machine.address is None
        while not self._rows.claim(self._run_id, alone=alone, has_owner=self._has_owner):
            self._stop_if_wanted()
            self._beat()
            time.sleep(POLL_SECONDS)
        self._begin_attempt(self._rows.get(self._run_id).attempt)

    def _has_owner(self, run: RunRecord) -> bool:
        return has_owner(run, RunFolder.of(self._home.folder, run.id))

    def _has_lost_ray(self) -> bool:
        """Whether a process of the Ray that was started here has ended, without which nothing more can be done."""
        return any(not process.is_running() or process.status() == psutil.STATUS_ZOMBIE for process in self._ray)

    def _begin_attempt(self, attempt: int) -> None:
        """Let workers of earlier attempts know that they are not needed any more."""
        self._attempt = attempt
        Control.read(self._folder.control).model_copy(update={"attempt": attempt}).write(self._folder.control)

    def _watch(self) -> RunMonitor:
        """Take in what earlier attempts wrote; what they trained after the last checkpoint is trained again."""
        if self._store is not None:
            stored = StoredCheckpoints(self._store, self._folder.path)
            fetch_newer(stored, self._folder.path, lambda said: self._rows.add_event(self._run_id, said))
        last_step = register_checkpoints(self._rows, self._run_id, self._folder)
        monitor = RunMonitor(self._rows, self._run_id, self._folder, self._attempt, self._make_mirror())
        self._rows.forget_steps_after(self._run_id, last_step)
        return monitor

    def _make_mirror(self) -> CheckpointMirror | None:
        """For a cluster whose machines may not see the run's folder."""
        self._mirror = None
        if self._is_spread and self._store is not None:
            tell = partial(self._rows.add_event, self._run_id)
            self._mirror = CheckpointMirror(self._store, self._folder, self._job.keep_checkpoints, tell)
        return self._mirror

    @property
    def _is_spread(self) -> bool:
        return self._store is not None and self._launch.machine.address is not None

    def _train_to_the_end(self, monitor: RunMonitor, evaluation: EvaluationQueue) -> None:
        """Train; a driver that is lost is replaced, as often as workers may be lost."""
        for failures_left in range(self._launch.max_failures, -1, -1):
            try:
                self._train(monitor, evaluation)
                return
            except _DriverLost as lost:
                # No other driver can start where Ray itself is gone; the watchdog starts both.
                if not failures_left or self._has_lost_ray():
                    raise EncoreError(_TOO_MANY_FAILURES) from lost
                event = "The driver of the training was lost; training continues from the last checkpoint."
                self._rows.add_event(self._run_id, event)
                self._begin_attempt(self._attempt + 1)
                self._rows.change(self._run_id, attempt=self._attempt)
                monitor = self._watch()

    def _train(self, monitor: RunMonitor, evaluation: EvaluationQueue) -> None:
        import ray  # noqa: PLC0415 - takes a second, and a run that waits does not need it

        from backend.runs.process.driver import Driver  # noqa: PLC0415

        actor: Any = ray.remote(num_cpus=0, scheduling_strategy=pin_to_this_machine(strictly=self._is_spread))(Driver)
        driver = actor.remote()
        fit = driver.fit.remote(
            self._job.model_dump(mode="json"),
            self._launch.model_dump(mode="json"),
            str(self._folder.path),
            self._attempt,
            None if self._store is None else str(self._store.location),
        )
        is_running = self._rows.get(self._run_id).state is RunState.RUNNING
        stop_by = float("inf")
        try:
            while not ray.wait([fit], timeout=POLL_SECONDS)[0]:
                if monitor.poll() and not is_running:
                    self._rows.move(self._run_id, RunState.RUNNING, "Training.")
                    is_running = True
                evaluation.advance()
                stop_by = self._check_on(stop_by)
            self._raise_for(fit)
        finally:
            # Nothing if it has ended; otherwise this is what frees the processors.
            ray.kill(driver)
            monitor.poll()
            release_placement_groups()
        self._stop_if_wanted()
        if self._mirror is not None:
            self._mirror.finish()
        if not is_running:
            self._rows.move(self._run_id, RunState.RUNNING, "Training.")
        register_checkpoints(self._rows, self._run_id, self._folder)

    def _check_on(self, stop_by: float) -> float:
        """Heartbeat, problems that workers wrote down, and how long a stop may still take."""
        self._raise_problem()
        self._beat()
        reason = Control.read(self._folder.control).stop
        if reason is None:
            return float("inf")
        stop_by = min(stop_by, time.monotonic() + GRACE_SECONDS[reason])
        if time.monotonic() >= stop_by:
            raise _Stopped(reason)
        return stop_by

    def _raise_problem(self) -> None:
        """End with the words of a worker that met something no other attempt would get around."""
        if not self._folder.problem.is_file():
            return
        problem = self._folder.problem.read_text(encoding="utf-8")
        if not problem:
            self._empty_since = self._empty_since or time.monotonic()
            if time.monotonic() - self._empty_since < WRITTEN_SECONDS:
                return  # it is just being written
        # Only a full disk leaves it empty.
        raise EncoreError(
            problem or f"The disk of {self._folder.path} was full for too long. Free some space and resume the run."
        )

    def _raise_for(self, fit: Any) -> None:
        """Turn what Ray Train ended with into a sentence."""
        import ray  # noqa: PLC0415

        try:
            ray.get(fit)
        except Exception as error:
            self._raise_problem()
            self._stop_if_wanted()
            _logger.exception("training ended")
            if isinstance(error, ray.exceptions.RayActorError):
                raise _DriverLost from error
            raise EncoreError(_TOO_MANY_FAILURES) from error

    def _stop_if_wanted(self) -> None:
        if (reason := self._stop_wanted()) is not None:
            raise _Stopped(reason)

    def _stop_wanted(self) -> StopReason | None:
        return Control.read(self._folder.control).stop

    def _beat(self) -> None:
        """Record that a supervisor is running."""
        if time.monotonic() - self._last_beat >= HEARTBEAT_SECONDS:
            self._rows.change(self._run_id, heartbeat_at=time.time())
            self._last_beat = time.monotonic()

    def _end(self, state: RunState, message: str) -> RunState:
        self._rows.move(self._run_id, state, message)
        return state


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when the run is done or was stopped on request."""
    parser = argparse.ArgumentParser(prog="python -m backend.runs.process.supervisor", description=__doc__)
    parser.add_argument("run", help="id of the run")
    parser.add_argument("--home", type=Path, required=True, help="ENCORE_HOME")
    parser.add_argument("--watchdog", type=int, help="process id of the watchdog, with which it ends")
    parsed = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    folder = RunFolder.of(parsed.home, parsed.run)
    signal.signal(signal.SIGTERM, lambda number, frame: folder.ask_to_stop("interrupt"))
    if parsed.watchdog is not None:
        _end_with(parsed.watchdog)
    try:
        return 1 if Supervisor(Home(parsed.home), parsed.run).run() is RunState.FAILED else 0
    except RayLost:
        return RAY_LOST_STATUS


def _end_with(parent: int) -> None:
    """End when the watchdog does: a run that nobody owns must not go on beside the next one."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
