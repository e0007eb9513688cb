"""A cluster whose machines share nothing but a storage, and of which one is taken away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from backend.cluster.connect import FINE_TUNE, connect, pin_to_this_machine
from backend.runs.planning.launch import LaunchPlan
from backend.runs.storage.control import Control, LineReader
from backend.runs.storage.run_folder import RunFolder
from tests.backend.cluster.machines import Machine, Machines, can_hide_folders, machines
from tests.training.finetuning import make_job, make_rows, write_dataset
from training.job import FineTuneJob
from training.machine import Machine as LocalMachine
from training.storage.folders import list_folders
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.worker import run_worker

# Ray trips over its own old settings while it is imported.
pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(not can_hide_folders(), reason="needs mounts of its own: unshare (util-linux), as root"),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning:ray", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]

MORE_STEPS_THAN_THERE_IS_TIME_FOR = 5000
CHECKPOINT_EVERY = 1000
STEPS_BEFORE, STEPS_AFTER = 3, 3
DEADLINE_SECONDS = 240.0
SAME_EVERYWHERE = ("talker_loss", "code_predictor_loss", "gradient_norm", "learning_rate")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What only the head of the cluster, and this process, see."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"file://{tmp_path_factory.mktemp('storage')}"


@pytest.fixture(scope="module")
def cluster(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two machines with a processor each, which this process has joined."""
    import ray  # noqa: PLC0415 - seconds to load, and only this tier needs it

    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_AUTH_MODE", "disabled")
    with machines(tmp_path_factory.mktemp("machines"), home, num_nodes=2, num_cpus=1) as cluster:
        patch.setenv("RAY_ADDRESS", cluster.address)
        with connect(FINE_TUNE):
            wait_until(lambda: ray.cluster_resources().get("CPU") == 2, cluster.log)
            yield cluster
    patch.undo()


def wait_until(is_reached: Callable[[], bool], told: Callable[[], str]) -> None:
    give_up_at = time.monotonic() + DEADLINE_SECONDS
    while not is_reached():
        assert time.monotonic() < give_up_at, told()
        time.sleep(0.1)


def works_for(machine: Machine, name: str) -> bool:
    """Whether a process of that name runs on a machine."""
    found = psutil.Process(machine.process.pid).children(recursive=True)
    return any(name in " ".join(process.cmdline()) for process in found if process.is_running())


class Remembering:
    """A worker alone, which stops after some steps and tells what they were."""

    rank, local_rank, world_size = 0, 0, 1

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps
        self.steps: dict[int, Mapping[str, float]] = {}
        self._asked = 0

    def report(self, metrics: Mapping[str, float], checkpoint_folder: Path | None) -> None:
        self.steps[int(metrics["step"])] = metrics

    def tell(self, sentence: str) -> None:
        pytest.fail(sentence)

    def should_stop(self) -> bool:
        self._asked += 1
        return self._asked >= self._num_steps


def lines_of(folder: RunFolder) -> list[dict[str, Any]]:
    return list(LineReader(folder.metrics).new_lines())


def test_a_run_leaves_a_machine_that_is_taken_away_and_loses_no_step(
    cluster: Machines, home: Path, storage: str, tmp_path: Path
) -> None:
    import ray  # noqa: PLC0415 - see above

    from backend.runs.process.driver import Driver  # noqa: PLC0415 - see above

    write_dataset(home / "dataset", make_rows((9, 12, 8)))
    job = make_job(home, num_steps=MORE_STEPS_THAN_THERE_IS_TIME_FOR, checkpoint_every=CHECKPOINT_EVERY)
    folder = RunFolder(job.output)
    folder.path.mkdir()
    Control(attempt=1).write(folder.control)
    launch = LaunchPlan(
        run_id="run",
        machine=LocalMachine(num_cpus=2, num_gpus=0, address=cluster.address),
        max_workers=1,
        # A worker that is lost would be one too many.
        max_failures=0,
    )
    driver = ray.remote(num_cpus=0, scheduling_strategy=pin_to_this_machine(strictly=True))(Driver).remote()
    plans = job.model_dump(mode="json"), launch.model_dump(mode="json")
    fit = driver.fit.remote(*plans, str(folder.path), 1, storage)

    def told() -> str:
        return f"{lines_of(folder)[-5:]}\n{cluster.log()}"

    def has_steps(number: int) -> bool:
        if ray.wait([fit], timeout=0)[0]:
            ray.get(fit)
        return sum("step" in line for line in lines_of(folder)) >= number

    wait_until(lambda: has_steps(STEPS_BEFORE), told)
    (leaving,) = [node for node in cluster.nodes if works_for(node, "RayTrainWorker")]
    leaving.take_away()
    wait_until(lambda: sum("workers" in line for line in lines_of(folder)) == 2, told)
    so_far = sum("step" in line for line in lines_of(folder))
    wait_until(lambda: has_steps(so_far + STEPS_AFTER), told)
    folder.ask_to_stop("pause")
    ray.get(fit, timeout=DEADLINE_SECONDS)
    ray.kill(driver)

    lines = lines_of(folder)
    steps = [line for line in lines if "step" in line]
    assert [line["step"] for line in steps] == list(range(1, len(steps) + 1)), "none twice, none left out"
    again = lines.index({"workers": 1}, 1)
    saved = next(line for line in lines[again::-1] if "step" in line)
    assert saved["checkpoint"] == f"step-{saved['step']:08d}", "saved at the step at which it stopped"
    assert any("A machine is being taken away" in line.get("notice", "") for line in lines[:again])
    assert not list(LineReader(folder.faults).new_lines()), "it is no failure"
    assert leaving.process.wait(timeout=60) is not None
    assert list_folders(ObjectStore(StorageLocation.parse(storage)), "runs/run/checkpoints")[-1].endswith(
        f"{len(steps):08d}"
    )
    alone = Remembering(len(steps))
    run_worker(FineTuneJob.parse({**job.model_dump(), "output": tmp_path / "alone"}), alone)
    for line in steps:
        undisturbed = alone.steps[line["step"]]
        assert [line[name] for name in SAME_EVERYWHERE] == pytest.approx(
            [undisturbed[name] for name in SAME_EVERYWHERE], rel=1e-6
        )
