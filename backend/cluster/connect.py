"""Ray for a run: an existing cluster, or one on this machine for as long as the run lasts."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

import psutil
from pydantic import BaseModel, ConfigDict

from backend.cluster.address import answers
from backend.cluster.local_settings import make_quiet
from backend.runs.errors import ClusterError
from training.model.project import PROJECT_FOLDER

# Ray gives a new cluster 30 seconds, which on a machine that is busy with other things is not always enough.
_START_ATTEMPTS = 3
_STARTED_TOO_SLOWLY = "timed out during startup"
_logger = logging.getLogger(__name__)
NAMESPACE = "encore"


class Machine(BaseModel):
    """What there is to train on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_cpus: int
    num_gpus: int
    address: str | None = None
    """Of an existing cluster; its size is known once it is joined."""

    @classmethod
    def here(cls, num_cpus: int | None = None) -> Machine:
        """This machine, or the cluster that RAY_ADDRESS names.

        Args:
            num_cpus: how many workers may share this machine's processors; as many as it has when None.
        """
        # Takes seconds, and most callers only list and show.
        import torch  # noqa: PLC0415 - see above

        address = os.environ.get("RAY_ADDRESS") or None
        # macOS has no such call.
        own_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(
            num_cpus=num_cpus or own_cpus,
            num_gpus=torch.cuda.device_count(),
            address=None if address == "local" else address,
        )


def connect(machine: Machine) -> None:
    """Join the cluster, or start one here.

    Raises:
        ClusterError: in one sentence, why that cannot be.
    """
    if machine.address is not None and not answers(machine.address):
        raise ClusterError(explain_no_ray(machine.address, ConnectionError()))
    import ray  # noqa: PLC0415 - takes a second, and only supervisors need it

    options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": True}
    if machine.address is None:
        make_quiet()
        options |= {"address": "local", "num_cpus": machine.num_cpus, "include_dashboard": False}
    else:
        modules = [str(PROJECT_FOLDER / name) for name in ("training", "backend")]
        options |= {"address": machine.address, "runtime_env": {"py_modules": modules}}
    for attempts_left in range(_START_ATTEMPTS - 1, -1, -1):
        others = set(psutil.Process().children(recursive=True))
        try:
            ray.init(**options)
            return
        except Exception as error:
            if attempts_left and _STARTED_TOO_SLOWLY in str(error):
                _logger.warning("Ray did not start within its own time; starting it again")
                _end_half_started(others)
                continue
            # Whatever it is, Ray's own report is for the log; a person needs the sentence.
            _logger.exception("Ray is not there")
            raise ClusterError(explain_no_ray(machine.address, error)) from error


def _end_half_started(others: set[psutil.Process]) -> None:
    """End what Ray left of a cluster that did not come up: what this process has started beside the others."""
    left = [child for child in psutil.Process().children(recursive=True) if child not in others]
    for child in left:
        with contextlib.suppress(psutil.Error):  # it has just ended
            child.kill()
    psutil.wait_procs(left, timeout=10)


def own_place() -> Any:  # Ray's strategies have no common type
    """Scheduling strategy that keeps an actor on this machine, so that another one that is lost takes workers only."""
    import ray  # noqa: PLC0415 - see `connect`
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)


def free_what_trainers_held() -> None:
    """Take their processors back from this run's trainers, all of which are gone.

    A trainer that was killed cannot give back the places of its workers. Ray Train's own cleaner of them asks Ray's
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
    """Refuse a run that the joined cluster could never place.

    Raises:
        ClusterError: it has fewer processors or GPUs in all, busy or not.
    """
    import ray  # noqa: PLC0415 - see `connect`

    there = ray.cluster_resources()  # type: ignore[no-untyped-call]
    for kind, needed in (("CPU", needed_cpus), ("GPU", needed_gpus)):
        if needed > there.get(kind, 0):
            raise ClusterError(
                f"The run needs {needed} {kind}s and the cluster has {there.get(kind, 0):g}. Use fewer workers."
            )


def _is_refused(error: BaseException | None) -> bool:
    """Whether the cluster did not take this machine's token, which Ray tells several errors further down."""
    while error is not None:
        text = f"{type(error).__name__} {error}".lower()
        if any(word in text for word in ("authenticat", "invalidauthtoken", "auth token")):
            return True
        error = error.__cause__ or error.__context__
    return False


def has_gpus(needed: int) -> bool:
    """Whether the joined cluster has as many GPUs, which nobody knows before it is joined."""
    import ray  # noqa: PLC0415 - see `connect`

    return bool(ray.cluster_resources().get("GPU", 0) >= needed)  # type: ignore[no-untyped-call]


def explain_no_ray(address: str | None, error: BaseException) -> str:
    """Why Ray could not be started or joined, in one sentence."""
    text = f"{type(error).__name__} {error}".lower()
    if _is_refused(error) and address is not None:
        return (
            f"The cluster at {address} asks for its token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the "
            "cluster's token if it was not started by you on this machine."
        )
    if "no space" in text or "outofdisk" in text or "errno 28" in text:
        return "Ray could not be started: the disk is full. Free some space and resume the run."
    if "af_unix" in text or "path too long" in text:
        return "Ray could not be started: its temporary folder has too long a name. Set RAY_TMPDIR to a short one."
    if "version mismatch" in text or ("version" in text and "python" in text):
        return f"The cluster at {address} runs another version of Ray or Python. Install the same there and here."
    if address is not None:
        return f"No Ray cluster answers at {address}. Start it, or unset RAY_ADDRESS to train on this machine."
    return "Ray could not be started on this machine; the run's log says why. Correct that and resume the run."
