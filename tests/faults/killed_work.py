"""SIGKILL of a worker that trains and of a process that builds a dataset: again, it ends as if nothing had been."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.audio.writing import write_wav
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.datasets import Datasets
from backend.store.home import Home
from backend.store.leftovers import WORKING_FOLDERS, sweep_leftovers
from tests.backend.dataset.speechlike import RATE, speechlike
from tests.faults.attack import Attack, Outcome, Result, attempt, left_behind
from tests.faults.training import NUM_STEPS, SAME_EVERYWHERE, job_in, prepare, train, trained
from tests.faults.world import World
from tests.golden import GOLDEN_CHECKPOINT
from training.data.code_rows import ROWS_FILE, read_code_rows
from training.model.project import PROJECT_FOLDER
from training.run_checkpoints import list_checkpoints

NUM_RECORDINGS = 6
FIRST_SECONDS = 8.0
"""For a build and a training before it is known how long they take."""

TRAIN = """
import sys
from pathlib import Path
from tests.faults.training import job_in, train
print(flush=True)
train(job_in(Path(sys.argv[1])))
"""

BUILD = """
import sys
from pathlib import Path
from backend.dataset.datasets import Datasets
from backend.store.home import Home
from tests.faults.killed_work import build_job
print(flush=True)
Datasets(Home(Path(sys.argv[1]))).build(build_job(Path(sys.argv[1]) / "recordings"))
"""


def build_job(recordings: Path) -> BuildJob:
    """What sounds like speech, with texts, so that nothing has to be recognized."""
    if not recordings.exists():
        recordings.mkdir(parents=True)
        for number in range(NUM_RECORDINGS):
            write_wav(recordings / f"{number}.wav", speechlike(number), RATE)
            (recordings / f"{number}.txt").write_text(f"This is what number {number} says.")
    return BuildJob.parse("ann", [recordings], model=str(GOLDEN_CHECKPOINT), whisper="none", num_actors=0)


def killed_training(rng: random.Random, world: World) -> Iterator[Outcome]:
    """A worker, once or twice at random moments; then to the end, with the same losses."""
    reports = trained(world)
    with world.scratch() as folder:
        prepare(folder)
        moments = [_kill(TRAIN, folder, rng, world) for _ in range(rng.choice((1, 2)))]
        what = f"training killed {', '.join(moments)}"
        job = job_in(folder)
        done = [one.progress.step for one in list_checkpoints(job.output)]

        def again() -> str:
            context = train(job)
            steps = [int(report["step"]) for report in context.reports]
            if steps != list(range(done[-1] + 1 if done else 1, NUM_STEPS + 1)):
                return f"steps {steps} after the checkpoint {done}"
            for report in context.reports:
                for name in SAME_EVERYWHERE:
                    before = reports[int(report["step"]) - 1][name]
                    if not math.isclose(report[name], before, rel_tol=1e-6):
                        return f"{name} of step {report['step']} is {report[name]} and was {before}"
            return ""

        yield attempt(what, again, world)
        left = [path.name for path in (job.output / "checkpoints").iterdir() if not path.name[5:].isdigit()]
        yield from left_behind(what, left + world.living() + world.left_in_temporary())


def killed_build(rng: random.Random, world: World) -> Iterator[Outcome]:
    """A build in one process; then again, with the same rows."""
    rows = world.once("built", _build)
    with world.scratch() as folder:
        build_job(folder / "recordings")
        what = f"build killed {_kill(BUILD, folder, rng, world)}"
        outcome = attempt(what, lambda: "" if _build(folder) == rows else "other rows", world)
        yield outcome
        sweep_leftovers(folder)
        left = [path for name in WORKING_FOLDERS for path in (folder / name).glob("*")]
        left += [path for path in (folder / "datasets").iterdir() if path.is_dir() and path.name != "ann"]
        yield from left_behind(what, [*left, *world.living(), *world.left_in_temporary()])
        if outcome.result is Result.RECOVERED and not (folder / "datasets" / "ann" / ROWS_FILE).is_file():
            yield Outcome(result=Result.LOST, what=f"{what}: there are no rows")


def _build(home: Path) -> list[Any]:
    Datasets(Home(home)).build(build_job(home / "recordings"))
    rows = read_code_rows(home / "datasets" / "ann" / ROWS_FILE)
    return sorted((row.text, row.seconds, tuple(row.codes), row.held_out) for row in rows)


def _kill(program: str, folder: Path, rng: random.Random, world: World) -> str:
    """Start a program on a folder, and kill it at a random moment of its work; returns when, in words."""
    seconds = world.durations.get(program, FIRST_SECONDS)
    moment = rng.random()
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, cwd=PROJECT_FOLDER, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        try:
            process.wait(moment * seconds)
            # It was done before: the next one is killed within its work.
            world.durations[program] = time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.kill()
    return f"after {moment * seconds:.1f} of {seconds:.1f} s"


TRAINING = Attack(name="killed training", weight=1.0, attack=killed_training)
BUILDING = Attack(name="killed builds", weight=1.0, attack=killed_build)
