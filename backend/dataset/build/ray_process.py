"""The stages on a Ray of the build's own, in a process of its own.

Ray, when a part of it is lost, may end the process that is connected to it, or never answer that process again. The
build itself is out of its reach, and starts both once more: what was finished is cached.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait

import psutil
from ray.exceptions import RayError, RayTaskError

from backend.cluster.connect import BUILD_DATASET, connect, quiet_ray_data
from backend.cluster.errors import ClusterError
from backend.dataset.build.context import BuildContext
from backend.dataset.build.heartbeat import BuildHeartbeat
from backend.dataset.build.passes import run_passes
from backend.dataset.build.progress import StageCounts, shared_counts
from backend.dataset.clips.stage_counts import StageCount
from backend.dataset.sources.find import SourceRecording
from backend.errors import EncoreError

_POLL_SECONDS = 0.5
_NUM_ATTEMPTS = 2
_VITAL = {"gcs_server", "raylet"}
_LOST = (
    "Ray lost a part of itself that the build needs; the log says why. What was finished is kept: build again, or "
    "build with --workers 0, which needs no Ray."
)
_logger = logging.getLogger(__name__)


class _RayLost(Exception):
    """The process that was connected to Ray ended before it had a result."""


def run_on_own_ray(
    sources: Sequence[SourceRecording], context: BuildContext, heartbeat: BuildHeartbeat
) -> dict[str, str]:
    """Start a Ray and run what is missing on it; returns what went wrong, by recording or clip.

    Raises:
        ClusterError: Ray cannot be started, or was lost a second time.
    """
    for attempts_left in range(_NUM_ATTEMPTS - 1, -1, -1):
        try:
            return _run_in_process(sources, context, heartbeat)
        except _RayLost:
            if attempts_left:
                _logger.warning("The Ray of this build was lost; it is started again, and the build goes on")
    raise ClusterError(_LOST)


@contextlib.contextmanager
def explain_lost_ray() -> Iterator[None]:
    """Say in one sentence that a Ray was lost which is not the build's own to start again.

    Raises:
        ClusterError: it was; faults of Encore within its workers are raised as they are.
    """
    try:
        yield
    except RayTaskError:
        raise
    except RayError as error:
        _logger.exception("Ray was lost")
        raise ClusterError(_LOST) from error


class _ReportedCounts(StageCounts):
    """What the process has reported last; a request to cancel is handed on to it."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.reported: list[StageCount] = []

    def all(self) -> list[StageCount]:
        return self.reported

    def cancel(self) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._connection.send(None)


def _run_in_process(
    sources: Sequence[SourceRecording], context: BuildContext, heartbeat: BuildHeartbeat
) -> dict[str, str]:
    # A fork would take over locks that this process's threads hold.
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=_work, args=(there, os.getpid(), sources, context), daemon=True)
    process.start()
    there.close()
    counts = _ReportedCounts(here)
    heartbeat.follow(counts)
    try:
        while here in wait([here, process.sentinel]):
            message = here.recv()
            if isinstance(message, dict):
                return message
            if isinstance(message, Exception):
                raise message
            counts.reported = message
        raise _RayLost
    except (EOFError, ConnectionError) as error:
        raise _RayLost from error
    finally:
        heartbeat.beat()
        heartbeat.follow(None)
        process.kill()
        process.join()
        here.close()


def _work(there: Connection, parent: int, sources: Sequence[SourceRecording], context: BuildContext) -> None:
    """Run the stages; sends counts while that lasts, then the result or the error, or nothing where Ray was lost."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the build's process is interrupted as well, and ends this one
    vital: list[psutil.Process] = []
    is_over = threading.Event()
    threading.Thread(target=_watch, args=(vital, parent, is_over), daemon=True, name="ray-watch").start()
    try:
        with connect(BUILD_DATASET, home=context.home):
            vital += [child for child in psutil.Process().children() if child.name() in _VITAL]
            if {child.name() for child in vital} != _VITAL:
                return
            quiet_ray_data()
            result = _run_and_report(there, sources, replace(context, counts=shared_counts()))
            is_over.set()  # before Ray is ended as planned
        there.send(result)
    except EncoreError as error:
        there.send(error)
    except RayError:
        _logger.exception("Ray was lost")
    except Exception as error:
        _logger.exception("the stages failed")
        there.send(RuntimeError(f"{type(error).__name__}: {error}"))


def _run_and_report(there: Connection, sources: Sequence[SourceRecording], context: BuildContext) -> dict[str, str]:
    is_done = threading.Event()

    def report() -> None:
        while not is_done.wait(_POLL_SECONDS):
            there.send(context.counts.all())
            if there.poll():
                there.recv()
                context.counts.cancel()

    def report_until_lost() -> None:
        try:
            report()
        except (RayError, OSError, EOFError):
            # Ray's part of the counts is gone, or the build is: the workers would not be heard any more.
            _logger.exception("progress cannot be reported")
            os._exit(1)

    reporter = threading.Thread(target=report_until_lost, daemon=True, name="ray-report")
    reporter.start()
    try:
        result = run_passes(sources, context)
    except RayTaskError as error:
        context.counts.all()  # raises where it was Ray that failed, not a worker's own code
        raise RuntimeError(str(error)) from error
    finally:
        is_done.set()
        reporter.join()
    there.send(context.counts.all())
    return result


def _watch(vital: list[psutil.Process], parent: int, is_over: threading.Event) -> None:
    """End this process with the build's, and with any of Ray's, which may leave it waiting for ever."""
    while not is_over.wait(_POLL_SECONDS):
        if os.getppid() != parent or any(
            not process.is_running() or process.status() == psutil.STATUS_ZOMBIE for process in vital
        ):
            os._exit(1)
