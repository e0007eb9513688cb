"""Builds on Ray: the same result as without, in a process of its own, through cancelling and killing."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from backend.cluster.connect import BUILD_DATASET, connect
from backend.cluster.errors import ClusterError
from backend.dataset.build.build import encoder_facts
from backend.dataset.build.context import BuildContext
from backend.dataset.build.progress import StageCounts
from backend.dataset.build.ray_tasks import source_row
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.views import BuildProgress, BuildState
from backend.dataset.datasets import Datasets
from backend.dataset.sources.find import SourceRecording
from backend.store.home import Home
from backend.transcription.select_transcriber import TranscriberSource
from tests.backend.dataset.spoken import SENTENCES
from tests.golden import GOLDEN_CHECKPOINT

# Ray trips over its own old settings while it is imported, and forgets its processes where it did not start in time.
pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning:ray", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]

# The machine may be slow and busy; nothing here depends on how long anything takes.
DEADLINE_SECONDS = 240.0


@pytest.fixture(scope="module")
def ray_address() -> Iterator[str]:
    """The Ray that a build starts for itself, for all tests of this file; builds in processes of their own join it."""
    import ray  # noqa: PLC0415 - seconds to load, and only this tier needs it

    patch = pytest.MonkeyPatch()
    patch.delenv("RAY_ADDRESS", raising=False)
    # Ray's workers step back behind everything else, which on a busy machine means that they stand still.
    patch.setenv("RAY_worker_niceness", "0")
    patch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 4}')
    with contextlib.ExitStack() as session:
        for attempts_left in (2, 1, 0):
            try:
                session.enter_context(connect(BUILD_DATASET))
                break
            except ClusterError:
                # Ray gives itself 30 seconds to start, whatever else the machine is doing.
                if not attempts_left:
                    raise
        assert ray.cluster_resources()["CPU"] == 4
        yield ray.get_runtime_context().gcs_address
    patch.undo()


@pytest.fixture(scope="module")
def ray_home(
    ray_address: str, tmp_path_factory: pytest.TempPathFactory, recordings: Path, job: Callable[..., BuildJob]
) -> Path:
    """A home with the dataset `ann`, built by two actors per stage."""
    home = tmp_path_factory.mktemp("ray-home")
    Datasets(Home(home)).build(job(recordings, num_actors=2))
    return home


def wait_for(datasets: Datasets, name: str, is_reached: Callable[[BuildProgress], bool]) -> BuildProgress:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        progress = datasets.progress(name)
        if is_reached(progress):
            return progress
        time.sleep(0.05)
    log = datasets._home / "jobs" / "dataset" / f"{name}.log"
    pytest.fail(f"{name} is still {progress}; its log says: {log.read_text()[-2000:] if log.exists() else 'nothing'}")


def test_ray_builds_what_one_process_builds(ray_home: Path, built_home: Path):
    on_ray, alone = (Datasets(Home(home)).show("ann") for home in (ray_home, built_home))
    assert on_ray.clips == tuple(
        replace(clip, audio=ray_home / clip.audio.relative_to(built_home)) for clip in alone.clips
    )
    assert on_ray.digest == alone.digest
    assert [recording.problem for recording in on_ray.recordings] == [
        recording.problem for recording in alone.recordings
    ]


@pytest.mark.parametrize("cores", [1.0, 2.0, 4.0])
def test_no_stage_waits_for_what_the_actors_hold(
    ray_address: str, tmp_path: Path, job: Callable[..., BuildJob], cores: float
):
    """What Ray makes of the passes: a stage that asks for more than is left would never begin."""
    from ray.data._internal.logical.optimizers import get_execution_plan  # noqa: PLC0415 - only this tier needs it

    from backend.dataset.build.ray_pipeline import first_pass, second_pass, share_of  # noqa: PLC0415

    encoder = encoder_facts(str(GOLDEN_CHECKPOINT), "cpu")
    context = BuildContext(
        home=tmp_path,
        job=job(tmp_path),
        model_folder=Path(encoder.folder),
        encoder_identity=encoder.identity,
        transcriber=TranscriberSource(path=Path(), name="", identity="", piece_seconds=30.0),
        language_code=None,
        counts=StageCounts(),
    )
    share = share_of({"CPU": cores}, None, use_gpu=False)
    rows = [source_row(SourceRecording(recording_id="0" * 32, path="", name="", given_text=None))] * 5
    for data in (first_pass(rows, context, share), second_pass(rows, context, share)):
        plan, _ = get_execution_plan(data._logical_plan)
        stages = list(plan.dag.post_order_iter())
        wanted = {stage.name: stage.incremental_resource_usage().cpu or 0.0 for stage in stages}
        assert 0 < max(wanted.values()) <= cores - share.num_actors * share.num_cpus + 1e-9, wanted


def test_progress_counts_every_row_of_every_stage(ray_home: Path):
    progress = Datasets(Home(ray_home)).progress("ann")
    decode, cut, tokenize = (progress.stage(stage) for stage in ("decode", "cut", "tokenize"))
    assert (decode.num_done, decode.num_total, decode.num_failed) == (len(SENTENCES) + 1, len(SENTENCES) + 1, 1)
    assert (cut.num_done, cut.num_total) == (len(SENTENCES), len(SENTENCES))
    assert (tokenize.num_done, tokenize.num_total, tokenize.num_reused) == (8, 8, 0)
    assert tokenize.audio_seconds > 10
    assert tokenize.seconds_left == 0


def test_building_again_on_ray_does_nothing(ray_home: Path, recordings: Path, job: Callable[..., BuildJob]):
    datasets = Datasets(Home(ray_home))
    digest = datasets.show("ann").digest
    assert datasets.build(job(recordings, num_actors=2)).digest == digest
    assert [stage.num_done - stage.num_reused for stage in datasets.progress("ann").stages] == [0, 0, 0, 0]


def test_a_killed_build_is_seen_and_goes_on_where_it_was(
    ray_address: str, tmp_path: Path, recordings: Path, job: Callable[..., BuildJob], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    home = tmp_path / "home"
    datasets = Datasets(Home(home))
    datasets.start_build(job(recordings, num_actors=1))
    seen = wait_for(datasets, "ann", lambda progress: progress.stage("decode").num_done > 0 or not progress.is_running)
    assert seen.is_running, seen.problem
    assert seen.process_id is not None
    os.kill(seen.process_id, signal.SIGKILL)
    killed = wait_for(datasets, "ann", lambda progress: not progress.is_running)
    assert killed.state is BuildState.INTERRUPTED
    assert "Build again" in killed.problem
    view = datasets.build(job(recordings, num_actors=1))
    assert view.state is BuildState.DONE
    assert len(view.clips) == len(SENTENCES)
    assert datasets.progress("ann").stage("decode").num_reused > 0
    assert not list((home / "artifacts" / "incoming").glob("*.safetensors"))


def kill_an_actor_of(driver: psutil.Process, name: str) -> None:
    """End a worker of this machine's Ray as the system would, as soon as there is one of that name."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline and driver.is_running():
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if name in " ".join(process.cmdline()):
                    process.kill()
                    return
        time.sleep(0.01)
    pytest.fail(f"there was never a worker called {name}")


def test_a_killed_worker_loses_nothing(
    ray_address: str,
    built_home: Path,
    tmp_path: Path,
    recordings: Path,
    job: Callable[..., BuildJob],
    monkeypatch: pytest.MonkeyPatch,
):
    """The build lives in a process of its own, on the Ray that is already running at this address."""
    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    home = tmp_path / "home"
    datasets = Datasets(Home(home))
    datasets.start_build(job(recordings, num_actors=1))
    driver = psutil.Process(datasets.progress("ann").process_id)
    kill_an_actor_of(driver, "TokenizeClips")
    ended = wait_for(datasets, "ann", lambda progress: not progress.is_running)
    assert ended.state is BuildState.DONE, ended.problem
    tokenize = ended.stage("tokenize")
    assert (tokenize.num_done, tokenize.num_total, tokenize.num_failed) == (len(SENTENCES), len(SENTENCES), 0)
    assert datasets.show("ann").digest == Datasets(Home(built_home)).show("ann").digest


def test_a_build_in_its_own_process_can_be_cancelled(
    ray_address: str, tmp_path: Path, recordings: Path, job: Callable[..., BuildJob], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    home = tmp_path / "home"
    datasets = Datasets(Home(home))
    datasets.start_build(job(recordings, num_actors=1))
    datasets.cancel("ann")
    ended = wait_for(datasets, "ann", lambda progress: not progress.is_running)
    assert ended.state is BuildState.CANCELLED
    assert not (home / "datasets" / "ann").exists()
