"""The same fine-tune started by Ray Train and by torchrun: what steps take, and how soon a cancel frees the machine."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from backend.runs.control import LineReader
from backend.runs.run_folder import RunFolder
from backend.runs.runs import Runs
from backend.runs.states import RunState
from backend.store.database import Database
from backend.voices.consent import Consent
from tests.backend.runs.test_ray_run import session_of
from tests.benchmarks.report import Spread
from training.job import FineTuneJob

# The first steps of a process allocate, and the last one waits for its checkpoint.
WARMUP_STEPS, LAST_STEPS = 3, 1
POLL_SECONDS = 0.2
MOST_ATTEMPTS = 3

HOW_TO_READ = """\
The same {num_steps} steps of {strategy} with {num_workers} workers, by report times, without the first {warmup}
and the last; {num_rounds} rounds, in which both had their turn. Best: each step in the round in which it was fastest,
which is the time with the least other work on the machine in it; the mean over the steps."""


@dataclass
class Launcher:
    """One way to start workers."""

    name: str
    rounds: list[list[float]] = field(default_factory=list)

    def add(self, report_times: Sequence[float]) -> None:
        """A round, as the moments of its reports."""
        pairs = zip(report_times[WARMUP_STEPS - 1 :], report_times[WARMUP_STEPS:], strict=False)
        self.rounds.append([1000 * (after - before) for before, after in pairs][:-LAST_STEPS])

    def medians(self) -> Spread:
        """Milliseconds per step, over the rounds."""
        return Spread.of([statistics.median(one) for one in self.rounds])

    def best(self) -> float:
        """Milliseconds per step, each taken from the round in which it was fastest."""
        return statistics.mean(min(of_step) for of_step in zip(*self.rounds, strict=True))


def compare_launchers(folder: Path, dataset: Path, model: Path, options: dict[str, Any], num_rounds: int) -> list[str]:
    """Let both have their turn in every round; the report's lines."""
    home = folder / "home"
    # Ray is polite to everybody else on the machine by default; torchrun is not.
    os.environ.update(RAY_worker_niceness="0", OMP_NUM_THREADS="1")
    os.environ.pop("RAY_ADDRESS", None)
    runs = Runs(Database(home), home, num_cpus=int(options["num_workers"]))
    under_ray, under_torchrun = Launcher("Ray Train"), Launcher("torchrun")

    def start(**changes: Any) -> str:
        fields = {**options, "judge": False, "name_voice": False, **changes}
        return runs.start(runs.prepare(dataset, "Ann", str(model), "quick", consent=Consent.give("Ann"), **fields))

    for number in range(num_rounds):
        run_id = finish_one(runs, start)
        under_ray.add([float(line["at"]) for line in lines_of(runs, run_id)])
        job = FineTuneJob.read(RunFolder(runs.folder(run_id)).job)
        under_torchrun.add(run_torchrun(job, folder / f"torchrun-{number}"))
    seconds = time_to_cancel(runs, start(num_steps=100_000))
    ratio = 100 * (under_ray.best() / under_torchrun.best() - 1)
    about = HOW_TO_READ.format(**options, warmup=WARMUP_STEPS, num_rounds=num_rounds)
    lines = [
        "## Ray Train and torchrun",
        "",
        about,
        "",
        "| started by | ms per step | best, ms per step |",
        "|---|---|---|",
    ]
    lines += [f"| {one.name} | {one.medians().show(1)} | {one.best():.1f} |" for one in (under_torchrun, under_ray)]
    lines += ["", f"Under Ray Train a step takes {ratio:+.1f} % of what it takes under torchrun, best against best."]
    return [*lines, "", f"From a cancel to the end of every process of the run: {seconds:.1f} s."]


def run_torchrun(job: FineTuneJob, folder: Path) -> list[float]:
    """Do a job that Ray has done, and tell the moments of its reports."""
    folder.mkdir()
    again = job.model_copy(update={"output": folder / "run"})
    again.write(folder / "job.json")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.num_workers}"]
    command += ["-m", "training.worker", str(folder / "job.json")]
    # In a session of its own, as a run has one: Linux shares processors out by sessions first.
    subprocess.run(
        command, check=True, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, start_new_session=True
    )
    return [float(json.loads(line)["at"]) for line in (again.output / "log.jsonl").read_text().splitlines()]


def lines_of(runs: Runs, run_id: str) -> list[dict[str, Any]]:
    """What the workers of a run wrote down step by step."""
    lines = LineReader(RunFolder(runs.folder(run_id)).metrics).new_lines()
    return [line for line in lines if "step" in line]


def time_to_cancel(runs: Runs, run_id: str) -> float:
    """Seconds until nothing of a running run is left, its Ray and its workers included."""
    wait_for(lambda: runs.get(run_id).step > WARMUP_STEPS)
    leader = runs.get(run_id).process_id
    assert leader is not None
    runs.cancel(run_id)
    began = time.monotonic()
    wait_for(lambda: not session_of(leader))
    return time.monotonic() - began


def finish_one(runs: Runs, start: Callable[[], str]) -> str:
    """Start runs until one comes to its end: on a crowded machine Ray does not always start within its own time."""
    for _ in range(MOST_ATTEMPTS):
        run_id = start()
        wait_for(partial(is_over, runs, run_id))
        if runs.get(run_id).state is RunState.DONE:
            return run_id
    raise RuntimeError(f"no run was done: {runs.get(run_id).message}")


def is_over(runs: Runs, run_id: str) -> bool:
    """Whether a run has come to its end."""
    return not runs.get(run_id).state.is_active


def wait_for(reached: Callable[[], bool]) -> None:
    """Poll, politely."""
    while not reached():
        time.sleep(POLL_SECONDS)
