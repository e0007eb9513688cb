"""A fine-tune on a cluster that shares nothing but an S3 server, while one machine after another is killed.

    python -m tests.benchmarks.cluster_training --out tests/benchmarks/results/2026-11-25-cluster-training.md

Three nodes of Ray on this machine, each with mounts and a cache of its own, do not see the run's folder; moto's server
is the storage. One worker trains; whenever another checkpoint is stored, the node that it is on is killed with all its
processes, and a new one is added. Every step is compared with the same job done without Ray, storage or faults. What
storing costs is measured by `storage_cost`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from backend.cluster.connect import FINE_TUNE, connect, pin_to_this_machine
from backend.runs.planning.launch import LaunchPlan
from backend.runs.storage.control import Control, LineReader
from backend.runs.storage.run_folder import RunFolder
from tests.backend.cluster.machines import Machine, Machines, machines
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import footer
from tests.benchmarks.storage_cost import Alone
from tests.object_server import BUCKET, object_server, variables
from tests.training.finetuning import make_job, make_rows, write_dataset
from training.job import FineTuneJob
from training.machine import Machine as WhereToTrain
from training.storage.folders import list_folders
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.worker import run_worker

NUM_NODES = 3
CHECKPOINTS = "runs/run/checkpoints"
DEADLINE_SECONDS = 600.0
LOSSES = ("talker_loss", "code_predictor_loss", "gradient_norm", "learning_rate")


def open_storage(location: str) -> ObjectStore:
    """The storage at a location."""
    return ObjectStore(StorageLocation.parse(location))


def wait_until(is_reached: Callable[[], bool], cluster: Machines) -> None:
    """Raises TimeoutError with what the nodes have said."""
    give_up_at = time.monotonic() + DEADLINE_SECONDS
    while not is_reached():
        if time.monotonic() > give_up_at:
            raise TimeoutError(cluster.log())
        time.sleep(0.1)


def node_of_the_worker(cluster: Machines) -> Machine | None:
    """The node on which the worker trains."""
    for node in cluster.nodes:
        if node.process.poll() is None:
            for process in psutil.Process(node.process.pid).children(recursive=True):
                try:
                    if "RayTrainWorker" in " ".join(process.cmdline()):
                        return node
                except psutil.Error:
                    continue
    return None


class Run:
    """The fine-tune on the cluster."""

    def __init__(self, cluster: Machines, job: FineTuneJob, storage: str, max_failures: int) -> None:
        import ray  # noqa: PLC0415 - takes a second, and what is measured here needs it only now

        from backend.runs.process.driver import Driver  # noqa: PLC0415 - see above

        self._ray = ray
        self._folder = RunFolder(job.output)
        self._folder.path.mkdir()
        Control(attempt=1).write(self._folder.control)
        where = WhereToTrain(num_cpus=1, num_gpus=0, address=cluster.address)
        launch = LaunchPlan(run_id="run", machine=where, max_workers=1, max_failures=max_failures)
        actor: Any = ray.remote(num_cpus=0, scheduling_strategy=pin_to_this_machine(strictly=True))(Driver)
        self._driver = actor.remote()
        plans = job.model_dump(mode="json"), launch.model_dump(mode="json")
        self._fit = self._driver.fit.remote(*plans, str(self._folder.path), 1, storage)

    def lines(self) -> list[dict[str, Any]]:
        """What its workers have written so far."""
        return list(LineReader(self._folder.metrics).new_lines())

    def steps(self) -> list[dict[str, Any]]:
        """The steps among that; of one that was done twice, both."""
        return [line for line in self.lines() if "step" in line]

    def is_over(self) -> bool:
        """Whether it has ended. Raises what it ended with."""
        if not self._ray.wait([self._fit], timeout=0)[0]:
            return False
        self._ray.get(self._fit)
        return True


def kill_machines(cluster: Machines, run: Run, store: ObjectStore, num_kills: int) -> list[tuple[int, int, float]]:
    """Kill the worker's node so often, each time when another checkpoint is stored.

    Returns for each kill the last step before it, the first one after it, and the seconds in between.
    """
    kills = []
    for _ in range(num_kills):
        saved = list_folders(store, CHECKPOINTS)

        def has_saved(before: Sequence[str] = saved) -> bool:
            return run.is_over() or list_folders(store, CHECKPOINTS) != before

        wait_until(has_saved, cluster)
        node = node_of_the_worker(cluster)
        if run.is_over() or node is None:
            break
        node.kill()
        began, last = time.monotonic(), run.steps()[-1]["step"]
        starts = sum("workers" in line for line in run.lines())
        cluster.add(1, num_cpus=1)

        def trains_again(before: int = starts) -> bool:
            lines = run.lines()
            return sum("workers" in line for line in lines) > before and "step" in lines[-1]

        wait_until(trains_again, cluster)
        lines = run.lines()
        first = next(
            line["step"] for line in lines[lines.index({"workers": 1}, _last_start(lines)) :] if "step" in line
        )
        kills.append((last, first, time.monotonic() - began))
        print(f"killed at step {last}, goes on with {first} after {kills[-1][2]:.0f} s", flush=True)
    return kills


def _last_start(lines: list[dict[str, Any]]) -> int:
    return max(number for number, line in enumerate(lines) if "workers" in line)


def largest_difference(steps: list[dict[str, Any]], alone: Mapping[int, Mapping[str, float]]) -> float:
    """Of any loss, norm or rate of any step from the undisturbed one's, as a share of it."""
    pairs = [(line[name], alone[line["step"]][name]) for line in steps for name in LOSSES]
    return max(abs(ours - theirs) / max(abs(theirs), 1e-12) for ours, theirs in pairs)


def done_alone(job: FineTuneJob, output: Path) -> Alone:
    """The whole job in this process."""
    alone = Alone()
    run_worker(FineTuneJob.parse({**job.model_dump(), "output": output}), alone)
    return alone


def main() -> None:
    """Do all of it and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--checkpoint-every", type=int, default=100)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--beside", default="nothing", help="what else ran on the machine, as the result says it")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    facts = describe_machine("cpu")
    with tempfile.TemporaryDirectory() as name, object_server() as port:
        for variable, value in variables(port).items():
            os.environ.pop(variable, None)
            if value is not None:
                os.environ[variable] = value
        folder, home = Path(name), Path(name) / "home"
        write_dataset(home / "dataset", make_rows((9, 12, 8)))
        job = make_job(home, num_steps=options.steps, checkpoint_every=options.checkpoint_every, export_at_end=False)
        storage = f"s3://{BUCKET}/show"
        os.environ["RAY_AUTH_MODE"] = "disabled"
        with machines(folder / "machines", home, NUM_NODES) as cluster:
            os.environ["RAY_ADDRESS"] = cluster.address
            with connect(FINE_TUNE):
                run = Run(cluster, job, storage, options.kills)
                kills = kill_machines(cluster, run, open_storage(storage), options.kills)
                wait_until(run.is_over, cluster)
        alone = done_alone(job, folder / "alone")
        report = describe(options, facts, kills, run.steps(), alone)
    options.out.write_text(report, encoding="utf-8")
    print(report)


def describe(
    options: argparse.Namespace,
    facts: list[str],
    kills: list[tuple[int, int, float]],
    steps: list[dict[str, Any]],
    alone: Alone,
) -> str:
    """The result as a document."""
    import ray  # noqa: PLC0415 - see above

    done = {line["step"] for line in steps}
    missing = sorted(set(range(1, options.steps + 1)) - done)
    rows = [f"| {last} | {first} | {seconds:.0f} s |" for last, first, seconds in kills]
    difference = largest_difference(steps, alone.steps)
    counts = f"--steps {options.steps} --checkpoint-every {options.checkpoint_every} --kills {options.kills}"
    return "\n".join(
        [
            f"# A fine-tune on machines that are killed, {datetime.now(UTC):%-d %B %Y}",
            "",
            f"`python -m tests.benchmarks.cluster_training {counts}`:",
            f"one worker on a Ray of {NUM_NODES} nodes on this machine that share no folder, with the tests' S3 server",
            "(moto) as storage. The model is the tests' tiny one, whose checkpoints are small.",
            "",
            "| last step before the kill | first step after it | in between |",
            "|---|---|---|",
            *rows,
            "",
            f"- Steps done: {len(done)} of {options.steps}; missing: {missing or 'none'}; repeated after a kill: "
            f"{len(steps) - len(done)}.",
            "- Largest difference of a loss, gradient norm or learning rate of any step from the same job undisturbed: "
            f"{difference:.1e} of its value.",
            "",
            *footer(options.beside, [*facts, f"Ray {ray.__version__}"]),
        ]
    )


if __name__ == "__main__":
    main()
