"""A short round of all attacks: nothing is lost, nothing is wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest

from training.model.project import PROJECT_FOLDER

SEED = 23


def attack(*options: str) -> None:
    """Attack for as long as each kind takes once; fails with the table if anything was found."""
    command = [sys.executable, "-m", "tests.faults", "--minutes", "0.1", "--seed", str(SEED), *options]
    done = subprocess.run(command, cwd=PROJECT_FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    assert "left out" not in done.stdout or sys.platform != "linux", done.stdout[-3000:]


def test_a_short_round_finds_nothing() -> None:
    attack("--without-ray")


@pytest.mark.ray
def test_serve_ends_well_whatever_of_it_is_killed() -> None:
    # Fine-tunes are killed in tests/backend/runs/test_ray_run.py, one part after the other.
    attack("--kind", "killed Serve")
