"""How large a Ray cluster is. A process of its own asks, because whoever joins a cluster is in it until it ends.

`python -m backend.cluster.size ADDRESS` prints the answer as one line of JSON.
"""

from __future__ import annotations

import logging
import subprocess
import sys

from pydantic import BaseModel, ConfigDict, ValidationError

from backend.cluster.address import answers
from backend.cluster.connect import explain_no_ray
from backend.runs.errors import ClusterError
from training.model.project import PROJECT_FOLDER

_logger = logging.getLogger(__name__)
_MAX_SECONDS = 60.0


class ClusterSize(BaseModel):
    """What a cluster has, and how much of that nobody holds at the moment."""

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
    """What the process that asks has found out."""

    size: ClusterSize | None = None
    problem: str = ""


def ask_cluster(address: str, *, max_seconds: float = _MAX_SECONDS) -> ClusterSize:
    """The size of the cluster at an address, within some seconds.

    Raises:
        ClusterError: in one sentence, why there is no answer.
    """
    if not answers(address):
        raise ClusterError(explain_no_ray(address, ConnectionError()))
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
        _logger.warning("nothing was found out about the cluster at %s:\n%s", address, done.stderr)
        raise ClusterError(explain_no_ray(address, ConnectionError())) from error
    if answer.size is None:
        _logger.warning("the cluster at %s:\n%s", address, done.stderr)
        raise ClusterError(answer.problem)
    return answer.size


def _ask(address: str) -> _Answer:
    import ray  # noqa: PLC0415 - takes a second, and only this process needs it

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        # The end of this process: the other one tells it in a sentence, and has the whole of it in its log.
        _logger.exception("Ray is not there")
        return _Answer(problem=explain_no_ray(address, error))
    there, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    return _Answer(
        size=ClusterSize(
            num_machines=sum(bool(node["Alive"]) for node in ray.nodes()),  # type: ignore[no-untyped-call]
            num_cpus=there.get("CPU", 0),
            free_cpus=free.get("CPU", 0),
            num_gpus=there.get("GPU", 0),
            free_gpus=free.get("GPU", 0),
            memory_bytes=there.get("memory", 0),
            free_memory_bytes=free.get("memory", 0),
        )
    )


if __name__ == "__main__":
    print(_ask(sys.argv[1]).model_dump_json())
