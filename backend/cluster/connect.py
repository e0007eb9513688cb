"""The one way to Ray: join the cluster that RAY_ADDRESS names, or start a Ray on this machine.

Encore's code is shipped to a cluster that is joined, whose machines need no checkout; a Ray started here runs from this
one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from backend.cluster.errors import ClusterError
from backend.cluster.local_cluster import own_ray
from backend.settings import Settings
from training.machine import Machine
from training.model.project import PROJECT_FOLDER

NAMESPACE = "encore"

_MAX_KNOCK_SECONDS = 10.0
# Ray gives a new cluster 30 seconds, which on a machine that is busy with other things is not always enough.
_START_ATTEMPTS = 3
_STARTED_TOO_SLOWLY = "timed out during startup"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Purpose:
    """What Ray is wanted for, as error messages say it.

    Attributes:
        here: how this machine does it instead.
        again: what to do once the fault is corrected.
        details: where Ray's own report can be read.
        shows_workers: whether what workers print is printed here as well.
        ships_code: whether workers on other machines need Encore's code.
        comes_first: whether its workers have the priority of what the user starts, on a Ray of this machine. Ray's own
            default, a niceness of 15, suits what nobody waits for.
    """

    here: str
    again: str
    details: str
    shows_workers: bool = True
    ships_code: bool = True
    comes_first: bool = False


FINE_TUNE = Purpose(here="unset it to train on this machine", again="resume the run", details="the run's log says why")
BUILD_DATASET = Purpose(
    here="unset it to build on this machine",
    again="build again, or build with --workers 0, which needs no Ray",
    details="the log says why",
    shows_workers=False,
)
SERVE = Purpose(
    here="unset it to serve from this machine",
    again="start again, or serve with --local, which needs no Ray",
    details="the messages above say why",
    comes_first=True,
)
SPEAK = Purpose(
    here="load the model on this computer (behind the model's name, above)",
    again="load the model again",
    details="the log says why",
    shows_workers=False,
)
INSPECT = Purpose(
    here="unset it to use this machine alone",
    again="look again",
    details="the log says why",
    shows_workers=False,
    ships_code=False,
)

_NICENESS = "RAY_worker_niceness"

# For a Ray that serves one task on one machine. What its servers and helpers do by themselves takes 60 to 80 ms of each
# second of processor time, which on two cores is taken from training; these settings halve that.
_LOCAL_SETTINGS = {
    # Counters for a dashboard that is not started: in the dashboard's agent, the largest consumer, and in every worker.
    "RAY_enable_metrics_collection": "0",
    "RAY_metrics_report_interval_ms": "600000",
    "RAY_task_events_report_interval_ms": "0",
    "REPORTER_UPDATE_INTERVAL_MS": "600000",
    # The log monitor, the second largest, looks ten times a second while there are fewer files than this.
    "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0",
    "LOG_NAME_UPDATE_INTERVAL_S": "2",
    # The raylet's own rounds, ten a second by default.
    "RAY_raylet_report_resources_period_milliseconds": "500",
    "RAY_object_manager_timer_freq_ms": "1000",
    # Processes started ahead of work that one task does not have.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    # Reports to Ray's makers.
    "RAY_USAGE_STATS_ENABLED": "0",
}


@contextlib.contextmanager
def connect(purpose: Purpose, machine: Machine | None = None, *, home: Path | None = None) -> Iterator[None]:
    """Be connected to Ray for a block; a connection that this process has already is used and kept.

    Args:
        purpose: what for; one of those above.
        machine: where; this machine, or the cluster that RAY_ADDRESS names, when None.
        home: whose token a Ray of this machine gets; the one that ENCORE_HOME names when None.

    Raises:
        ClusterError: Ray cannot be started or joined, and why, in one sentence.
    """
    import ray  # noqa: PLC0415 - takes a second, which a run that only waits need not spend

    if ray.is_initialized():
        yield
        return
    machine = machine or Machine.here()
    with contextlib.ExitStack() as until_end:
        if machine.address is None:
            until_end.enter_context(own_ray(home or Settings.from_environment().home_folder))
        _start(purpose, machine)
        until_end.callback(ray.shutdown)
        yield


def is_ray_given() -> bool:
    """Whether `connect` would use a Ray that was there before, and starts none."""
    import ray  # noqa: PLC0415 - see `connect`

    return ray.is_initialized() or Machine.here().address is not None


def _start(purpose: Purpose, machine: Machine) -> None:
    import ray  # noqa: PLC0415 - see `connect`

    if machine.address is not None and not answers(machine.address):
        raise ClusterError(explain_no_ray(purpose, machine.address, ConnectionError()))
    options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": purpose.shows_workers}
    if not purpose.shows_workers:
        options["logging_level"] = logging.WARNING
    if machine.address is None:
        for name, value in _LOCAL_SETTINGS.items():
            # What is set already is the user's choice.
            os.environ.setdefault(name, value)
        if purpose.comes_first:
            os.environ.setdefault(_NICENESS, "0")
        options |= {"address": "local", "num_cpus": machine.num_cpus, "include_dashboard": False}
    else:
        options["address"] = machine.address
        if purpose.ships_code:
            options["runtime_env"] = {"py_modules": [str(PROJECT_FOLDER / name) for name in ("training", "backend")]}
    for attempts_left in range(_START_ATTEMPTS - 1, -1, -1):
        before = set(psutil.Process().children(recursive=True))
        try:
            ray.init(**options)
            return
        except Exception as error:  # Ray raises a bare Exception when a node does not come up in time
            ray.shutdown()
            if attempts_left and _STARTED_TOO_SLOWLY in str(error):
                _logger.warning("Ray did not start within its own time limit; starting it again")
                _end_half_started(before)
                continue
            # Ray's own report is for the log; the user needs the sentence.
            _logger.exception("Ray could not be started or joined")
            raise ClusterError(explain_no_ray(purpose, machine.address, error)) from error


def _end_half_started(before: set[psutil.Process]) -> None:
    """End what Ray left of a cluster that did not come up: the children that this process did not have `before`."""
    left = [child for child in psutil.Process().children(recursive=True) if child not in before]
    for child in left:
        with contextlib.suppress(psutil.Error):  # it has just ended
            child.kill()
    psutil.wait_procs(left, timeout=10)


def answers(address: str) -> bool:
    """Whether anything listens at host:port, with or without ray://; true for other forms, which only Ray understands.

    Ray itself tries for minutes.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isdecimal()):
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), _MAX_KNOCK_SECONDS).close()
    except (OSError, OverflowError):
        return False
    return True


def explain_no_ray(purpose: Purpose, address: str | None, error: BaseException) -> str:
    """Why Ray could not be started or joined, in one sentence."""
    text = f"{type(error).__name__} {error}".lower()
    if _is_refused(error) and address is not None:
        return (
            f"The cluster at {address} asks for a token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the "
            "cluster's token unless you started it on this machine yourself."
        )
    if "no space" in text or "outofdisk" in text or "errno 28" in text:
        return f"Ray could not be started: the disk is full. Free some space and {purpose.again}."
    if "af_unix" in text or "path too long" in text:
        return "Ray could not be started: the path of its temporary folder is too long. Set RAY_TMPDIR to a short one."
    if "version mismatch" in text or ("version" in text and "python" in text):
        return f"The cluster at {address} runs another version of Ray or Python. Install the same ones there and here."
    if address is not None and any("no node info found" in cause for cause in _causes_of(error)):
        return (
            f"This machine is not part of the cluster at {address}. Run `ray start --address={address} --num-cpus=0` "
            f"on it, correct RAY_ADDRESS, or {purpose.here}."
        )
    if address is not None:
        return f"No Ray cluster answers at {address}. Start it, correct RAY_ADDRESS, or {purpose.here}."
    return f"Ray could not be started on this machine; {purpose.details}. Correct that and {purpose.again}."


def _is_refused(error: BaseException) -> bool:
    """Whether the cluster did not accept this machine's token."""
    words = ("authenticat", "invalidauthtoken", "auth token")
    return any(word in cause for cause in _causes_of(error) for word in words)


def _causes_of(error: BaseException | None) -> Iterator[str]:
    """An error and its causes in small letters: Ray reports what it was several of them further down."""
    while error is not None:
        yield f"{type(error).__name__} {error}".lower()
        error = error.__cause__ or error.__context__


def quiet_ray_data() -> None:
    """Turn off Ray Data's progress bars in this process, which would tear up whatever else is on the terminal."""
    import ray.data  # noqa: PLC0415 - see `connect`

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Its warnings are about missing bars, and about hanging for ever where a busy machine takes a minute to start.
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def pin_to_this_machine(*, strictly: bool = False) -> Any:  # Ray's strategies have no common type
    """Scheduling strategy that keeps an actor on this machine: if another one is lost, only workers are.

    Ray may place it elsewhere all the same, unless `strictly`, which is for those that need this machine's files.
    """
    import ray  # noqa: PLC0415 - see `connect`
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=not strictly)


def release_placement_groups() -> None:
    """Free the processors that trainers of this run held before; none of them is needed any more.

    A trainer that was killed cannot give back its workers' placement group. Ray Train's own cleaner asks Ray's
    dashboard every second whether the trainer lives: on a small machine that costs more than it is worth, and a cluster
    without a dashboard never answers, so that the next trainer would wait for ever.
    """
    import ray  # noqa: PLC0415 - see `connect`
    from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group  # noqa: PLC0415

    run = ray.get_runtime_context().get_job_id()
    for held in placement_group_table().values():
        # Its name ends with that of the job it was made in; a cluster that was joined has those of others.
        if held["state"] != "REMOVED" and held["placement_group_id"].endswith(run):
            name = ray.PlacementGroupID(bytes.fromhex(held["placement_group_id"]))
            remove_placement_group(PlacementGroup(name))


def check_size(needed_cpus: int, needed_gpus: int) -> None:
    """Refuse a run that the connected cluster could never place.

    Raises:
        ClusterError: it has fewer processors or GPUs in all, busy or not.
    """
    for kind, needed in (("CPU", needed_cpus), ("GPU", needed_gpus)):
        if needed > (available := _resources().get(kind, 0)):
            raise ClusterError(f"The run needs {needed} {kind}s and the cluster has {available:g}. Use fewer workers.")


def has_gpus(needed: int) -> bool:
    """Whether the connected cluster has that many GPUs."""
    return _resources().get("GPU", 0) >= needed


def has_room(num_cpus: float, num_gpus: float) -> bool:
    """Whether so much of the connected cluster is free."""
    import ray  # noqa: PLC0415 - see `connect`

    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return free.get("CPU", 0) >= num_cpus and free.get("GPU", 0) >= num_gpus


def _resources() -> dict[str, float]:
    import ray  # noqa: PLC0415 - see `connect`

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return resources
