"""A measured program in its own process, asked for one round at a time.

Parties of a comparison take turns, so that a busy machine slows all of them down and not one; and each has
its own process, so that its peak memory is its own. Questions and answers are lines of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any


class MeasuredProcess:
    """Starts a program and asks it questions."""

    def __init__(self, name: str, command: Sequence[str], setup: Mapping[str, Any], threads: int) -> None:
        """Start `command` and send it `setup`; `started` waits for it to be ready."""
        self.name = name
        # OpenMP reads its number of threads before torch is asked for another.
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process, see close
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages, env=environment, text=True
        )
        self._send(setup)

    def ready(self) -> dict[str, Any]:
        """Wait for the program to be built; what it says about itself."""
        return self._receive()

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """One round. Raises RuntimeError with the program's last words when it has died."""
        self._send(question)
        return self._receive()

    def close(self) -> None:
        """End the program: it stops when nobody can ask it any more."""
        self._process.communicate()
        self._messages.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._fail()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _fail(self) -> None:
        code = self._process.wait()
        self._messages.seek(0)
        last_words = self._messages.read().decode(errors="replace")[-3000:]
        raise RuntimeError(f"{self.name} ended with status {code}:\n{last_words}")
