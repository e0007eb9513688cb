"""The tests that need a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).parents[4]
_LAST_WORDS = 6000


def measure(setup: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run them; how many passed, and what the others said. Without a GPU all are skipped."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *setup["tests"]]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)}
    said = "" if counts and not {"failed", "error"} & counts.keys() else (done.stdout + done.stderr)[-_LAST_WORDS:]
    yield {"counts": counts, "said": said}
