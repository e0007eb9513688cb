"""How large a Ray cluster is. A separate process asks, because joining a cluster lasts until the process ends.

`python -m backend.cluster.size ADDRESS` prints the answer as one line of JSON.
"""

from __future__ import annotations

import logging
import subprocess
import sys

from pydantic import BaseModel, ConfigDict, ValidationError

from backend.cluster.connect import INSPECT, answers, connect, explain_no_ray
from backend.cluster.errors import ClusterError
from training.machine import Machine
from training.model.project import PROJECT_FOLDER

_logger = logging.getLogger(__name__)
_MAX_SECONDS = 60.0


class ClusterSize(BaseModel):
    """What a cluster has, and how much of that is free at the moment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_machines: int
    num_cpus: float
    free_cpus: float
    num_gpus: float
    free_gpus: float
    memory_bytes: float
    free_memory_bytes: float
    """As Ray counts it: what tasks have asked for, not what they have taken."""


class _Answer(BaseModel):
    """What the separate process prints."""

    size: ClusterSize | None = None
    problem: str = ""


def ask_cluster(address: str, *, max_seconds: float = _MAX_SECONDS) -> ClusterSize:
    """The size of the cluster at an address, within some seconds.

    Raises:
        ClusterError: in one sentence, why there is no answer.
    """
    if not answers(address):
        raise ClusterError(explain_no_ray(INSPECT, address, ConnectionError()))
    command = [sys.executable, "-m", "backend.cluster.size", address]
    try:
        done = subprocess.run(
            command, cwd=PROJECT_FOLDER, capture_output=True, text=True, timeout=max_seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"The cluster at {address} did not answer within {max_seconds:g} s.") from error
    try:
        answer = _Answer.model_validate_json(done.stdout.strip().rpartition("\n")[2])
    except ValidationError as error:
        _logger.warning("no size was reported for the cluster at %s:\n%s", address, done.stderr)
        raise ClusterError(explain_no_ray(INSPECT, address, ConnectionError())) from error
    if answer.size is None:
        _logger.warning("the cluster at %s:\n%s", address, done.stderr)
        raise ClusterError(answer.problem)
    return answer.size


def _ask(address: str) -> _Answer:
    try:
        with connect(INSPECT, Machine(num_cpus=0, num_gpus=0, address=address)):
            return _Answer(size=_measure())
    except ClusterError as error:
        return _Answer(problem=str(error))


def _measure() -> ClusterSize:
    import ray  # noqa: PLC0415 - takes a second, and only this process needs it

    there, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    return ClusterSize(
        num_machines=sum(bool(node["Alive"]) for node in ray.nodes()),  # type: ignore[no-untyped-call]
        num_cpus=there.get("CPU", 0),
        free_cpus=free.get("CPU", 0),
        num_gpus=there.get("GPU", 0),
        free_gpus=free.get("GPU", 0),
        memory_bytes=there.get("memory", 0),
        free_memory_bytes=free.get("memory", 0),
    )


if __name__ == "__main__":
    print(_ask(sys.argv[1]).model_dump_json())
