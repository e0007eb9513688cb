"""Builds on a cluster whose machines share nothing but a storage, and of which one is lost in the middle."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from backend.cluster.connect import BUILD_DATASET, connect
from backend.cluster.errors import ClusterError
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.datasets import Datasets
from backend.dataset.storage.stored_workspace import BUILDS_FOLDER
from backend.dataset.storage.workspace import CACHE_FOLDER
from backend.store.home import Home
from tests.backend.cluster.machines import Machines, can_hide_folders, machines
from tests.backend.dataset.test_ray_build import wait_for
from tests.golden import GOLDEN_CHECKPOINT
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore

# Ray trips over its own old settings while it is imported.
pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(not can_hide_folders(), reason="needs mounts of its own: unshare (util-linux), as root"),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning:ray", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]


@pytest.fixture
def office(tmp_path: Path) -> Path:
    """What only the head of the cluster, and this process, see: recordings, model and home."""
    folder = tmp_path / "office"
    folder.mkdir()
    (folder / "model").symlink_to(GOLDEN_CHECKPOINT)
    return folder


@pytest.fixture
def cluster(office: Path, tmp_path: Path) -> Iterator[Machines]:
    """Two machines with a processor each, which this process has joined."""
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_AUTH_MODE", "disabled")
    with machines(tmp_path / "machines", office, num_nodes=2, num_cpus=1) as cluster:
        patch.setenv("RAY_ADDRESS", cluster.address)
        with connect(BUILD_DATASET):
            yield cluster
    patch.undo()


def test_machines_that_share_nothing_build_what_one_process_builds(
    cluster: Machines,
    office: Path,
    recordings: Path,
    built_home: Path,
    tmp_path: Path,
    job: Callable[..., BuildJob],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = shutil.copytree(recordings, office / recordings.name)
    home = office / "home"
    datasets, order = Datasets(Home(home)), job(given, model=str(office / "model"), num_actors=1)

    monkeypatch.delenv("ENCORE_STORAGE", raising=False)
    with pytest.raises(ClusterError, match=f"do not see {home}.* ENCORE_STORAGE"):
        datasets.build(order)
    assert not (home / CACHE_FOLDER).exists()

    (tmp_path / "storage").mkdir()
    monkeypatch.setenv("ENCORE_STORAGE", f"file://{tmp_path / 'storage'}")
    with ThreadPoolExecutor(1) as builder:
        building = builder.submit(datasets.build, order)
        wait_for(datasets, "ann", lambda now: (now.is_running and now.stage("decode").num_done > 0) or building.done())
        cluster.nodes[0].kill()
        view = building.result()
    alone = Datasets(Home(built_home)).show("ann")
    assert view.digest == alone.digest
    assert [replace(clip, audio=Path()) for clip in view.clips] == [replace(clip, audio=Path()) for clip in alone.clips]
    assert [recording.problem for recording in view.recordings] == [recording.problem for recording in alone.recordings]
    store = ObjectStore(StorageLocation("file", str(tmp_path / "storage")))
    assert not store.sizes(BUILDS_FOLDER)
    assert not list(cluster.nodes[1].folder.glob("cache/encore/storage/builds/*/*/*"))
