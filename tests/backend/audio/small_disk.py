"""A disk that is soon full, for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run_on_small_disk(folder: Path, program: str, size: str = "64k") -> str:
    """Run a Python program whose argument is a file system of `size`, mounted for it alone, and return its stderr.

    Skips the test where ordinary users may not mount anything.
    """
    folder.mkdir()
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount = f'mount -t tmpfs -o size={size} tmpfs "$1"'
    try:
        subprocess.run([*unshare, mount, "sh", str(folder)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets nobody mount a file system")
    command = [*unshare, f'{mount} && exec "$2" -c "$3" "$1"', "sh", str(folder), sys.executable, program]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    return done.stderr
