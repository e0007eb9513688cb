"""A dataset for the tiny reference checkpoint: random codes, random embedding, clips that beep."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backend.runs.small_dataset import write_small_dataset


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What ENCORE_HOME is in these tests."""
    return tmp_path / "encore-home"


@pytest.fixture
def dataset(home: Path) -> Path:
    """Twelve clips, two of them held out, in `home`."""
    return write_small_dataset(home / "datasets" / "mine")
