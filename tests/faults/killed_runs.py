"""SIGKILL of every process of a fine-tune on Ray, at a random moment: it ends as if nothing had been."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from backend.runs.process.supervisor_process import end_owner
from backend.runs.runs import Runs
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.voices.registry import Voices
from tests.backend.runs.small_dataset import write_small_dataset
from tests.backend.runs.test_ray_run import SAME_EVERYWHERE, losses_under_torchrun, processes_of, start
from tests.faults.attack import Attack, Outcome, attempt, left_behind
from tests.faults.world import World
from training.job import FineTuneJob

ROLES = (
    "backend.runs.process.watchdog",
    "backend.runs.process.supervisor",
    "ray::Driver",
    "RayTrainWorker",
    "raylet/raylet",
)
NUM_STEPS = 8
MAX_SECONDS = 60.0
"""From the start of a run to its kill; a run takes about as long."""
DEADLINE_SECONDS = 500.0


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """One run and one kill, or two."""
    # Names of sockets have to be short.
    with world.scratch() as folder, tempfile.TemporaryDirectory(prefix="faults-", dir="/tmp") as short:
        os.environ.update(RAY_worker_niceness="0", RAY_TMPDIR=short)
        home = folder / "home"
        write_small_dataset(home / "datasets" / "mine")
        runs = Runs(Home(home), num_cpus=2)
        run_id = start(runs, NUM_STEPS)
        kills = sorted((rng.random() * MAX_SECONDS, rng.choice(ROLES)) for _ in range(rng.choice((1, 1, 2))))
        what = f"a fine-tune without {', '.join(f'{role} after {moment:.0f} s' for moment, role in kills)}"
        try:
            yield attempt(
                what, lambda: _live_through(runs, run_id, kills, world, home), world, seconds=DEADLINE_SECONDS
            )
        finally:
            for run in runs.list():
                end_owner(run, RunFolder.of(home, run.id))
        yield from left_behind(what, [*world.living(), *world.left_in_temporary()])


def _live_through(runs: Runs, run_id: str, kills: list[tuple[float, str]], world: World, home: Path) -> str:
    began = time.monotonic()
    while (run := runs.get(run_id)).state.is_active:
        if kills and time.monotonic() - began > kills[0][0]:
            _, role = kills.pop(0)
            for process in processes_of(run.process_id, role)[:1] if run.process_id else []:
                process.kill()
        if not runs.is_looked_after(run_id):
            # As the app does when it starts.
            runs.reconcile()
        time.sleep(0.2)
    if run.state is not RunState.DONE:
        return f"it is {run.state}: {run.message}"
    steps = [record.step for record in runs.metrics(run_id)]
    if steps != list(range(1, NUM_STEPS + 1)):
        return f"steps {steps}"
    told = [[record.measures[name] for name in SAME_EVERYWHERE] for record in runs.metrics(run_id)]
    job = FineTuneJob.read(runs.folder(run_id) / "job.json")
    alone = world.once("alone", lambda folder: _alone(job, folder, world))
    pairs = [(a, b) for ours, theirs in zip(told, alone, strict=True) for a, b in zip(ours, theirs, strict=True)]
    if any(abs(a - b) > 1e-5 * abs(b) for a, b in pairs):
        return f"losses {told} instead of {alone}"
    if Voices(Home(home)).get("Ann").run_id != run_id:
        return "the voice is another run's"
    return ""


def _alone(job: FineTuneJob, folder: Path, world: World) -> list[list[float]]:
    """The losses without Ray, and without what torchrun leaves behind."""
    losses = losses_under_torchrun(job, folder)
    for left in world.temporary.glob("torchelastic_*"):
        shutil.rmtree(left)
    return losses


ATTACK = Attack(name="killed fine-tunes", weight=1.5, attack=step, needs_ray=True)
