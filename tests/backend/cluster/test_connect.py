"""Ray is started or joined: quietly where it is this process's own, and again where it did not start at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from backend.cluster import connect as cluster
from backend.cluster.connect import (
    BUILD_DATASET,
    FINE_TUNE,
    INSPECT,
    SERVE,
    SPEAK,
    Purpose,
    connect,
    explain_no_ray,
    has_gpus,
)
from backend.cluster.errors import ClusterError
from training.machine import Machine

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


def test_a_start_that_timed_out_is_cleaned_up_and_repeated(
    monkeypatch: pytest.MonkeyPatch, bystander: subprocess.Popen[bytes]
) -> None:
    start = SlowStart(num_failures=2)
    monkeypatch.setattr("ray.init", start)
    with connect(FINE_TUNE, Machine(num_cpus=1, num_gpus=0)):
        assert start.num_calls == 3
    for process in start.left:
        process.wait(timeout=60)
    assert bystander.poll() is None


def test_a_machine_where_ray_never_starts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    start = SlowStart(num_failures=9)
    monkeypatch.setattr("ray.init", start)
    with (
        pytest.raises(ClusterError, match="Ray could not be started on this machine"),
        connect(FINE_TUNE, Machine(num_cpus=1, num_gpus=0)),
    ):
        pass
    assert start.num_calls == cluster._START_ATTEMPTS
    start.left[-1].kill()
    for process in start.left:
        process.wait(timeout=60)


def test_a_local_ray_is_quiet_and_keeps_what_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", SlowStart(num_failures=0))
    monkeypatch.setenv("LOG_NAME_UPDATE_INTERVAL_S", "7")
    with connect(FINE_TUNE, Machine(num_cpus=1, num_gpus=0)):
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        assert os.environ["LOG_NAME_UPDATE_INTERVAL_S"] == "7"


@pytest.mark.parametrize(("there", "enough"), [({"CPU": 8.0}, False), ({"GPU": 1.0}, False), ({"GPU": 2.0}, True)])
def test_gpus_of_a_cluster_are_used_where_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, float], enough: bool
) -> None:
    monkeypatch.setattr("ray.cluster_resources", lambda: there)
    assert has_gpus(2) is enough


def test_a_joined_cluster_keeps_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", SlowStart(num_failures=0))
    before = dict(os.environ)
    with (
        socket.create_server(("127.0.0.1", 0)) as there,
        connect(FINE_TUNE, Machine(num_cpus=1, num_gpus=0, address=f"127.0.0.1:{there.getsockname()[1]}")),
    ):
        assert dict(os.environ) == before


@pytest.mark.parametrize("form", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "127.0.0.1:99999999999"])
@pytest.mark.parametrize(
    ("purpose", "remedy"),
    [
        (FINE_TUNE, "unset it to train on this machine"),
        (BUILD_DATASET, "unset it to build on this machine"),
        (SERVE, "unset it to serve from this machine"),
        (SPEAK, "load the model on this computer"),
        (INSPECT, "unset it to use this machine alone"),
    ],
    ids=["fine-tune", "build", "serve", "speak", "inspect"],
)
def test_a_cluster_that_does_not_answer_is_reported_at_once(
    form: str, purpose: Purpose, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken, so that nothing else listens there, and not listened to
        monkeypatch.setenv("RAY_ADDRESS", form.format(port=silent.getsockname()[1]))
        with pytest.raises(ClusterError, match=f"No Ray cluster answers at .* or {remedy}"):
            connect(purpose).__enter__()


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        (None, OSError(28, "No space left on device"), "the disk is full"),
        (None, RuntimeError("AF_UNIX path length cannot exceed 107"), "temporary folder is too long"),
        ("ray://there:1", RuntimeError("Version mismatch: python 3.10"), "another version"),
        ("there:1", ConnectionError("refused"), "No Ray cluster answers at there:1"),
        (None, RuntimeError("?"), "the run's log says why"),
    ],
)
def test_the_reason_why_ray_is_missing_is_one_sentence(address: str | None, error: Exception, message: str) -> None:
    assert message in explain_no_ray(FINE_TUNE, address, error)


@pytest.mark.parametrize("purpose", [BUILD_DATASET, SERVE, INSPECT], ids=["build", "serve", "inspect"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("?"), ConnectionError("no")])
@pytest.mark.parametrize("address", [None, "there:1"])
def test_errors_speak_of_a_run_only_where_there_is_one(purpose: Purpose, error: Exception, address: str | None) -> None:
    message = explain_no_ray(purpose, address, error)
    assert "the run" not in message
    assert "train" not in message


def test_a_machine_that_has_not_joined_the_cluster_is_told_how() -> None:
    """It was said that no cluster answers."""
    error = ConnectionError("Failed to connect to Ray cluster at there:1")
    error.__cause__ = RuntimeError("No node info found matching attributes: '' when trying to resolve node")
    assert "Run `ray start --address=there:1 --num-cpus=0` on it" in explain_no_ray(FINE_TUNE, "there:1", error)


def test_a_cluster_that_asks_for_a_token_says_so_below_other_errors() -> None:
    error = ConnectionError("Failed to connect to Ray cluster at there:1")
    error.__cause__ = RuntimeError("Last connection error: RPC error: InvalidAuthToken (python 3.11, version 2)")
    assert "RAY_AUTH_MODE=token" in explain_no_ray(FINE_TUNE, "there:1", error)
