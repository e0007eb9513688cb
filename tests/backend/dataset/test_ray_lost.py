"""A build whose own Ray loses a part of itself: it starts Ray again and loses nothing, or says so in one sentence."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.views import BuildState
from backend.dataset.datasets import Datasets
from backend.store.home import Home
from tests.backend.dataset.test_ray_build import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.ray


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 4}')


@pytest.fixture
def build(tmp_path: Path, recordings: Path, job: Callable[..., BuildJob]) -> Iterator[tuple[Datasets, psutil.Process]]:
    """A build in a process of its own, which starts a Ray; neither outlives the test."""
    datasets = Datasets(Home(tmp_path / "home"))
    datasets.start_build(job(recordings, num_actors=1))
    # Until it reports for the first time, the build belongs to the process that has asked for it.
    begun = wait_for(datasets, "ann", lambda progress: progress.process_id != os.getpid())
    assert begun.process_id is not None
    process = psutil.Process(begun.process_id)
    yield datasets, process
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
        process.wait(timeout=60)


def kill_one(build: psutil.Process, name: str, *, beside: str) -> int:
    """Kill a process of the build's Ray as soon as there is another of it, called `beside`; returns which."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline and build.is_running():
        found = {}
        with contextlib.suppress(psutil.Error):
            for process in build.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    # Of an agent, the name in full; of a raylet, its program, for its arguments name the others.
                    words = process.cmdline()
                    found[Path(words[0]).name if words else ""] = process
        if any(beside in title for title in found):
            for title, process in found.items():
                if name in title:
                    process.kill()
                    return process.pid
        time.sleep(0.05)
    pytest.fail(f"there was never a process called {name}")


@pytest.mark.parametrize("part", ["raylet", "DashboardAgent", "StageCounts"])
def test_a_build_that_loses_its_ray_goes_on_with_another(
    part: str, build: tuple[Datasets, psutil.Process], built_home: Path, tmp_path: Path
) -> None:
    datasets, process = build
    kill_one(process, part, beside="TokenizeClips")
    ended = wait_for(datasets, "ann", lambda progress: not progress.is_running)
    assert ended.state is BuildState.DONE, ended.problem
    assert datasets.show("ann").digest == Datasets(Home(built_home)).show("ann").digest
    assert "it is started again" in (tmp_path / "home" / "jobs" / "dataset" / "ann.log").read_text()
    assert ended.stage("decode").num_reused > 0


def test_a_build_that_loses_its_ray_again_says_so_in_one_sentence(build: tuple[Datasets, psutil.Process]) -> None:
    datasets, process = build
    first = kill_one(process, "raylet", beside="StageCounts")
    psutil.wait_procs([psutil.Process(first)] if psutil.pid_exists(first) else [], timeout=60)
    kill_one(process, "raylet", beside="StageCounts")
    ended = wait_for(datasets, "ann", lambda progress: not progress.is_running)
    assert ended.state is BuildState.FAILED
    assert "Ray lost a part of itself" in ended.problem
    assert "Encore" not in ended.problem
