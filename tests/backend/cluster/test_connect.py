"""How a run starts Ray: quiet where it is the run's own, and again where it did not start at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from backend.cluster import connect as cluster
from backend.cluster.connect import Machine, connect, has_gpus
from backend.runs.errors import ClusterError

pytestmark = pytest.mark.ray

TOO_SLOW = "The current node timed out during startup. This could happen because some of the raylet failed to startup."


class SlowStart:
    """Ray's `init` on a machine that is too busy for it: leaves a process behind, and raises."""

    def __init__(self, num_failures: int) -> None:
        self.left: list[subprocess.Popen[bytes]] = []
        self.num_calls, self._num_failures = 0, num_failures

    def __call__(self, **options: Any) -> None:
        self.num_calls += 1
        if self.num_calls <= self._num_failures:
            self.left.append(start_process())
            raise Exception(TOO_SLOW)


def start_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Ray's settings are variables of the process that starts it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A child that is none of Ray's."""
    process = start_process()
    yield process
    process.kill()
    process.wait()


def test_a_start_that_took_too_long_is_cleared_away_and_made_again(
    monkeypatch: pytest.MonkeyPatch, bystander: subprocess.Popen[bytes]
) -> None:
    start = SlowStart(num_failures=2)
    monkeypatch.setattr("ray.init", start)
    connect(Machine(num_cpus=1, num_gpus=0))
    assert start.num_calls == 3
    for process in start.left:
        process.wait(timeout=60)
    assert bystander.poll() is None


def test_a_machine_where_ray_never_starts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    start = SlowStart(num_failures=9)
    monkeypatch.setattr("ray.init", start)
    with pytest.raises(ClusterError, match="Ray could not be started on this machine"):
        connect(Machine(num_cpus=1, num_gpus=0))
    assert start.num_calls == cluster._START_ATTEMPTS
    start.left[-1].kill()
    for process in start.left:
        process.wait(timeout=60)


def test_a_ray_of_its_own_is_quiet_and_wishes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", SlowStart(num_failures=0))
    monkeypatch.setenv("AUTOSCALER_UPDATE_INTERVAL_S", "7")
    connect(Machine(num_cpus=1, num_gpus=0))
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert os.environ["AUTOSCALER_UPDATE_INTERVAL_S"] == "7"


@pytest.mark.parametrize(("there", "enough"), [({"CPU": 8.0}, False), ({"GPU": 1.0}, False), ({"GPU": 2.0}, True)])
def test_gpus_of_a_cluster_are_used_where_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, float], enough: bool
) -> None:
    monkeypatch.setattr("ray.cluster_resources", lambda: there)
    assert has_gpus(2) is enough


def test_a_joined_cluster_keeps_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", SlowStart(num_failures=0))
    before = dict(os.environ)
    with socket.create_server(("127.0.0.1", 0)) as there:
        connect(Machine(num_cpus=1, num_gpus=0, address=f"127.0.0.1:{there.getsockname()[1]}"))
    assert dict(os.environ) == before


def test_a_cluster_that_does_not_answer_is_told_at_once() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken, and not listened to
        with pytest.raises(ClusterError, match="No Ray cluster answers at"):
            connect(Machine(num_cpus=1, num_gpus=0, address=f"127.0.0.1:{silent.getsockname()[1]}"))
