"""The process of one part: writes down what it has found each time that it has found more. Started by `run_part`."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path


def main(module: str, setup: Path, found: Path) -> None:
    """Measure; a result is whole or absent, whenever the process is ended."""
    part = importlib.import_module(module)
    unfinished = found.with_suffix(".unfinished")
    for so_far in part.measure(json.loads(setup.read_text())):
        unfinished.write_text(json.dumps(so_far))
        os.replace(unfinished, found)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
