"""Workers of a cluster that was joined run Encore's code as it was shipped to them: they have no checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.views import BuildState
from backend.dataset.datasets import Datasets
from backend.store.home import Home
from tests.backend.cluster.other_ray import WITHOUT_TOKEN, other_ray
from training.model.project import PROJECT_FOLDER

pytestmark = pytest.mark.ray

# The machine may be slow and busy; nothing here depends on how long anything takes.
DEADLINE_SECONDS = 400.0

# Ray adds the folder of the driver's script and the current folder to the workers' path, and neither is the checkout.
DRIVER = """
import json, sys
from pathlib import Path
import ray
from backend.cluster.connect import BUILD_DATASET, FINE_TUNE, SERVE, connect
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.datasets import Datasets
from backend.serving.deploy.shared_model import model_here, share_model
from backend.serving.settings import EngineSettings
from backend.store.home import Home
from backend.voices.reference import read_reference
from backend.voices.samples import get_sample

def find(samples, rate, text):
    from backend.voices.excerpt import find_excerpt
    return find_excerpt(samples, rate, text, max_seconds=10.0).transcript

def locate():
    import backend.dataset.build.ray_tasks, sys, training.worker
    return [backend.dataset.build.ray_tasks.__file__, training.worker.__file__, sys.path]

found = {}
for name, purpose in {"train": FINE_TUNE, "serve": SERVE, "build": BUILD_DATASET}.items():
    with connect(purpose):
        found[name] = ray.get(ray.remote(num_cpus=0)(locate).remote())
        if name == "serve":
            # Shipped code has no assets.
            shared = share_model(EngineSettings(model="mini"))
            assert ray.get(ray.remote(num_cpus=0)(model_here).remote(shared)) == shared.model_folder
            sample = get_sample("owen")
            said, recording = " ".join(one.text for one in sample.sentences), read_reference(sample.path)
            excerpt = ray.remote(num_cpus=0)(find).remote(recording.samples, recording.sample_rate, said)
            # In a process of its own, on a machine that has no checkout either.
            begun = ray.get(excerpt)
            assert begun and said.startswith(begun)
        if name == "build" and len(sys.argv) > 2:
            home = Path(sys.argv[2])
            Datasets(Home(home)).build(BuildJob.model_validate_json(Path(sys.argv[1]).read_text()))
print(json.dumps(found))
"""


@pytest.fixture
def empty_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def address(empty_folder: Path) -> Iterator[str]:
    with other_ray(empty_folder) as address:
        yield address


def test_workers_without_the_checkout_train_serve_and_build(
    address: str, empty_folder: Path, tmp_path: Path, recordings: Path, job: Callable[..., BuildJob]
) -> None:
    home, order, script = tmp_path / "home", tmp_path / "job.json", empty_folder / "driver.py"
    order.write_text(job(recordings, num_actors=1).model_dump_json())
    script.write_text(DRIVER)
    done = subprocess.run(
        [sys.executable, str(script), str(order), str(home)],
        cwd=empty_folder,
        env={**os.environ, **WITHOUT_TOKEN, "PYTHONPATH": str(PROJECT_FOLDER), "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found.keys() == {"train", "serve", "build"}
    for backend_module, training_module, path in found.values():
        assert not Path(backend_module).is_relative_to(PROJECT_FOLDER)
        assert not Path(training_module).is_relative_to(PROJECT_FOLDER)
        assert str(PROJECT_FOLDER) not in path
    view = Datasets(Home(home)).show("ann")
    assert view.state is BuildState.DONE
    assert view.clips
