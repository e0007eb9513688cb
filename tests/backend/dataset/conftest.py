"""A dataset of flite's sentences, built once; tests that change it get a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.datasets import Datasets
from backend.store.home import Home
from tests.backend.dataset.spoken import speak_folder
from tests.golden import GOLDEN_CHECKPOINT


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight sentences with their texts, a broken file, and one that is no sound."""
    folder = speak_folder(tmp_path_factory.mktemp("recordings"))
    whole = (folder / "00.wav").read_bytes()
    (folder / "broken.wav").write_bytes(whole[: len(whole) // 2])
    (folder / "text.wav").write_text("This is a letter, not a recording.")
    return folder


@pytest.fixture(scope="session")
def job() -> Callable[..., BuildJob]:
    """A job with the tiny checkpoint and nobody listening, in this process."""

    def make(recordings: Path | list[Path], name: str = "ann", **options: object) -> BuildJob:
        paths = [recordings] if isinstance(recordings, Path) else recordings
        return BuildJob.parse(
            name, paths, **({"model": str(GOLDEN_CHECKPOINT), "whisper": "none", "num_actors": 0} | options)
        )

    return make


@pytest.fixture(scope="session")
def built_home(tmp_path_factory: pytest.TempPathFactory, recordings: Path, job: Callable[..., BuildJob]) -> Path:
    """A home with the dataset `ann`; not to be changed."""
    home = tmp_path_factory.mktemp("built-home")
    Datasets(Home(home)).build(job(recordings))
    return home


@pytest.fixture
def home(built_home: Path, tmp_path: Path) -> Path:
    """A copy of `built_home` to change."""
    return shutil.copytree(built_home, tmp_path / "home")


@pytest.fixture
def datasets(home: Path) -> Datasets:
    """The verbs, over a copy of the built dataset."""
    return Datasets(Home(home))
