"""A part for the tests: finds something, starts a process that would outlive it, and then ends as it is told."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any


def measure(setup: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Find its child's process id; then wait for ever, or fail."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield {"child": child.pid}
    if setup["fails"]:
        raise RuntimeError("The GPU has gone.")
    time.sleep(600)
