"""Ray of this machine's own: on loopback alone, and closed to whoever cannot read its token."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from backend.cluster.connect import BUILD_DATASET, SERVE, connect
from backend.cluster.errors import ClusterError
from backend.cluster.local_cluster import own_token
from tests.backend.cluster.listening import is_loopback, listening_sockets
from training.machine import Machine

JOIN = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False); print('joined', ray.cluster_resources())"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_token_is_kept_and_readable_by_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        token = own_token(tmp_path / "new home")
    finally:
        os.umask(before)
    assert mode_of(token) == 0o600
    content = token.read_text()
    assert len(content) >= 32
    token.chmod(0o644)
    assert own_token(tmp_path / "new home").read_text() == content
    assert mode_of(token) == 0o600


def test_processes_that_start_at_once_share_one_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as several:
        found = set(several.map(lambda _: own_token(tmp_path).read_text(), range(64)))
    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["ray_token"]


def test_a_token_that_cannot_be_stored_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match="its token cannot be stored"):
        own_token(tmp_path / "file")


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::ResourceWarning")
def test_only_this_user_of_this_machine_reaches_an_own_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray  # noqa: PLC0415 - only this tier needs it

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of a cluster that is joined at other times")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with connect(BUILD_DATASET, Machine(num_cpus=2, num_gpus=0), home=tmp_path):
        worker = ray.get(ray.remote(lambda: os.getpid()).remote())
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        assert worker in {process.pid for process in processes}
        listening = listening_sockets(processes)
        assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
        assert not [socket for socket in listening if not is_loopback(socket[1])]
        token, address = tmp_path / "ray_token", ray.get_runtime_context().gcs_address
        assert mode_of(token) == 0o600
        assert not files_with(token.read_text(), Path(ray._private.worker._global_node.get_session_dir_path()))
        assert "joined" in join(address, {}).stdout
        refused = join(address, {"RAY_AUTH_TOKEN": "0" * 64})
        assert "joined" not in refused.stdout
        assert "InvalidAuthToken" in refused.stderr
        # As another user, who has no token at all.
        refused = join(address, {"RAY_AUTH_TOKEN_PATH": "", "RAY_AUTH_MODE": "disabled"})
        assert "joined" not in refused.stdout
    assert os.environ["RAY_AUTH_TOKEN"] == "of a cluster that is joined at other times"
    assert os.environ["RAY_AUTH_MODE"] == "disabled"


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::ResourceWarning")
def test_what_serves_comes_before_what_nobody_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray  # noqa: PLC0415 - only this tier needs it

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    found = {}
    for purpose in (BUILD_DATASET, SERVE):
        # What the last of them sets is put back after the test.
        monkeypatch.setenv("RAY_worker_niceness", "")
        monkeypatch.delenv("RAY_worker_niceness")
        with connect(purpose, Machine(num_cpus=2, num_gpus=0), home=tmp_path):
            found[purpose] = ray.get(ray.remote(lambda: os.nice(0)).remote())
    assert found[SERVE] == os.nice(0) < found[BUILD_DATASET]


def files_with(token: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]


def join(address: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Join a Ray from a process of its own."""
    command = [sys.executable, "-c", JOIN, address]
    return subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300, check=False
    )
