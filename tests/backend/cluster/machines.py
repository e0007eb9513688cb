"""A cluster of several machines that share nothing, on this one: each node of Ray has mounts of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil

from tests.backend.cluster.other_ray import WITHOUT_TOKEN

_START_ATTEMPTS = 3
_STARTED = b"Ray runtime started"
_RAY = Path(sys.executable).with_name("ray")
# Hides a folder from what is started, as if it were on another machine.
_HIDING = 'mount -t tmpfs none "$1" && shift && exec "$@"'


def can_hide_folders() -> bool:
    """Whether this system lets us have mounts of our own; many containers do not."""
    if shutil.which("unshare") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        command = [*_unshared(Path(folder)), "true"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _unshared(hidden: Path) -> list[str]:
    names = ["--mount"] if os.getuid() == 0 else ["--user", "--map-root-user", "--mount"]
    return ["unshare", *names, "sh", "-c", _HIDING, "sh", str(hidden)]


@dataclass
class Machine:
    """One node of a cluster.

    Attributes:
        process: `ray start --block`, which leads a session of its own.
        folder: its own, with what it prints and a cache for what it fetches.
    """

    process: subprocess.Popen[bytes]
    folder: Path

    def has_started(self) -> bool:
        """Whether it is up; false as well where Ray, which gives itself 30 seconds to start, has given up."""
        while self.process.poll() is None:
            if _STARTED in (self.folder / "log").read_bytes():
                return True
            time.sleep(0.1)
        return False

    def take_away(self) -> None:
        """Announce its end, as clouds and Kubernetes do."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all of it at once."""
        for process in [*_children(self.process.pid), self.process]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait(timeout=60)


class Machines:
    """The cluster: a head without processors, which sees everything, and nodes that do not see `hidden`."""

    def __init__(self, folder: Path, hidden: Path) -> None:
        self._folder, self._hidden = folder, hidden
        self.nodes: list[Machine] = []
        self._starts = count()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        # Names of sockets have to be short.
        self._short = tempfile.TemporaryDirectory(prefix="machines-", dir="/tmp")
        head = ["--head", f"--port={port}", "--num-cpus=0", f"--temp-dir={self._short.name}/head"]
        head += ["--node-ip-address=127.0.0.1", "--include-dashboard=false"]
        self.head = self._start("head", head, [])

    def add(self, num_nodes: int, num_cpus: int) -> None:
        """Start further nodes at addresses of their own, all at once, and wait until they are there."""
        numbers = range(len(self.nodes), len(self.nodes) + num_nodes)
        self.nodes += [self._start_node(number, num_cpus) for number in numbers]
        for number in numbers:
            for _ in range(_START_ATTEMPTS - 1):
                if self.nodes[number].has_started():
                    break
                self.nodes[number] = self._start_node(number, num_cpus)
            assert self.nodes[number].has_started(), self.log()

    def _start_node(self, number: int, num_cpus: int) -> Machine:
        options = [f"--address={self.address}", f"--node-ip-address=127.0.0.{number + 2}", f"--num-cpus={num_cpus}"]
        # Nodes that start in one folder at the same time choose the same names for their sockets.
        options += [f"--temp-dir={self._short.name}/{next(self._starts)}"]
        return self._start(f"node-{number}", options, _unshared(self._hidden))

    def _start(self, name: str, options: Sequence[str], around: Sequence[str]) -> Machine:
        own = self._folder / name
        (own / "work").mkdir(parents=True, exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "RAY_ADDRESS")}
        environment |= {
            **WITHOUT_TOKEN,
            # Ray's workers step back behind everything else, which on a busy machine means that they stand still.
            "RAY_worker_niceness": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_enable_metrics_collection": "0",
            "XDG_CACHE_HOME": str(own / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        command = [*around, str(_RAY), "start", "--block", *options]
        with (own / "log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=own / "work", env=environment, stdout=log, stderr=log, start_new_session=True
            )
        return Machine(process, own)

    def log(self) -> str:
        """What all nodes have printed."""
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in self._folder.glob("*/log"))

    def end(self) -> None:
        """Kill all of them."""
        for node in [*self.nodes, self.head]:
            node.kill()
        self._short.cleanup()


@contextlib.contextmanager
def machines(folder: Path, hidden: Path, num_nodes: int, num_cpus: int = 1) -> Iterator[Machines]:
    """A head and some nodes for a block; what lies in `hidden` only the head sees."""
    cluster = Machines(folder, hidden)
    try:
        assert cluster.head.has_started(), cluster.log()
        cluster.add(num_nodes, num_cpus)
        yield cluster
    finally:
        cluster.end()


def _children(process_id: int) -> list[psutil.Process]:
    try:
        return psutil.Process(process_id).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
