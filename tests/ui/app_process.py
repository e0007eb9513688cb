"""`python app.py` as a person starts it, for tests that need the whole program.

Imports nothing of Gradio: a conftest imports this before the environment for the tests is set.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT_FOLDER = Path(__file__).resolve().parents[2]
READY = "Encore is ready: "


@dataclass(frozen=True, kw_only=True)
class AppProcess:
    """A running app."""

    address: str
    process: subprocess.Popen[str]
    log: Path

    def end(self) -> int:
        """Ask it to end, as a service manager does; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


@contextmanager
def start_app(home: Path, *, model: str, port: int | None = None, **settings: str) -> Iterator[AppProcess]:
    """Start the app with `home` for everything it stores, until the block ends; `settings` are by name: AUTH="a:b"."""
    home.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    environment = os.environ | {"ENCORE_HOME": str(home), "ENCORE_MODEL": model, "ENCORE_PORT": str(port)}
    environment |= {f"ENCORE_{name}": value for name, value in settings.items()}
    log = home / "log.txt"
    command = [sys.executable, "app.py"]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=PROJECT_FOLDER, env=environment, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8"
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith(READY), f"{line!r}, {log.read_text()}"
            yield AppProcess(address=line.removeprefix(READY).split()[0], process=process, log=log)
        finally:
            process.kill()


def free_port() -> int:
    """A port nobody listens on; another program could take it before it is used, which has not been seen."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
