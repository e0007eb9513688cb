"""Runs one part in a process of its own with a limit to its time, and reads what it has found however it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

REPOSITORY = Path(__file__).parents[3]
_LAST_WORDS = 3000

State = Literal["done", "over time", "failed", "left out"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a part.

    Attributes:
        state: how it ended.
        seconds: that it took.
        why: it was left out, or the last words of a part that failed.
        found: what it has measured, also where it failed afterwards.
    """

    state: State
    seconds: float = 0.0
    why: str = ""
    found: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For the file of results."""
        return asdict(self)


def run_part(module: str, setup: dict[str, Any], folder: Path, *, limit_seconds: float) -> Outcome:
    """Run a part's `measure`; ends it and all it has started after the limit.

    Args:
        module: of the part, with its packages.
        setup: for its `measure`.
        folder: for its files, of its own.
        limit_seconds: of time on the clock.
    """
    folder.mkdir(parents=True)
    found, messages = folder / "found.json", folder / "messages.txt"
    (folder / "setup.json").write_text(json.dumps({**setup, "seconds": limit_seconds, "folder": str(folder)}))
    command = [sys.executable, "-m", "tests.benchmarks.gpu.part_worker", module, str(folder / "setup.json"), str(found)]
    started = time.monotonic()
    with messages.open("w") as log:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            status: int | None = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            # What a part has started is in its process group, also where the part itself has ended.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    state: State = "over time" if status is None else "failed" if status else "done"
    return Outcome(
        state=state,
        seconds=time.monotonic() - started,
        why=messages.read_text(errors="replace")[-_LAST_WORDS:] if state == "failed" else "",
        found=json.loads(found.read_text()) if found.is_file() else {},
    )
