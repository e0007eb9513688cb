"""The same fine-tune started by Ray Train and by torchrun: what steps take, and how soon a cancel frees the machine."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from backend.runs.planning.plan import RunPlan
from backend.runs.planning.request import RunRequest
from backend.runs.runs import Runs
from backend.runs.storage.control import LineReader
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.voices.consent import Consent
from tests.backend.runs.test_ray_run import session_of
from tests.benchmarks.report import Spread
from training.job import FineTuneJob

# The first steps of a process allocate, and the last one waits for its checkpoint.
WARMUP_STEPS, LAST_STEPS = 3, 1
POLL_SECONDS = 0.2
MAX_ATTEMPTS = 3

HOW_TO_READ = """\
The same {num_steps} steps of {strategy} with {num_workers} workers, by report times, without the first {warmup}
and the last; {num_rounds} rounds, in which both had their turn, each first in every other round. Best: each step in the
round in which it was fastest, which is the time with the least other work on the machine in it; the mean over the
steps. Processor time: of the workers together, per step, from the {warmup}th report to the last but one; it counts what
Ray's threads do within them, and hardly depends on what else the machine does. Of the others: processes that belong to
the launcher and are no workers (Ray's servers, its driver, the supervisor), over the same time, per step. Where other
programs run, times on the clock favour torchrun: Linux shares processors out by sessions, and each of its workers has
one, while Ray's share theirs."""


class ProcessorWatch:
    """Processor time of a session's processes, looked at now and then."""

    def __init__(self, worker: str) -> None:
        """`worker` is in the command lines of the processes that train."""
        self._worker = worker
        self._looks: list[tuple[float, float, float]] = []

    def look(self, leader: int) -> None:
        """Note what the workers have taken so far, and what the others have."""
        workers = others = 0.0
        # torchrun gives each worker a session of its own, and Ray's have only their supervisor's in common.
        processes = set(session_of(leader))
        with suppress(psutil.Error):
            processes.update(psutil.Process(leader).children(recursive=True))
        for process in processes:
            with suppress(psutil.Error):  # it has just ended
                seconds = sum(process.cpu_times()[:2])
                command = " ".join(process.cmdline())
                # torchrun itself is told the name of the workers' module.
                if self._worker in command and "torch.distributed.run" not in command:
                    workers += seconds
                else:
                    others += seconds
        self._looks.append((time.time(), workers, others))

    def per_step(self, report_times: Sequence[float]) -> tuple[float, float]:
        """Seconds of workers and of others for each step between two reports, those between looks in proportion."""
        first, last = WARMUP_STEPS - 1, len(report_times) - 1 - LAST_STEPS
        (workers, others), (later_workers, later_others) = (self._at(report_times[place]) for place in (first, last))
        return (later_workers - workers) / (last - first), (later_others - others) / (last - first)

    def _at(self, moment: float) -> tuple[float, float]:
        before = max((look for look in self._looks if look[0] <= moment), default=self._looks[0])
        after = min((look for look in self._looks if look[0] > moment), default=self._looks[-1])
        share = (moment - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
        return before[1] + share * (after[1] - before[1]), before[2] + share * (after[2] - before[2])


@dataclass
class Launcher:
    """One way to start workers."""

    name: str
    worker: str
    rounds: list[list[float]] = field(default_factory=list)
    of_workers: list[float] = field(default_factory=list)
    of_others: list[float] = field(default_factory=list)

    def add(self, report_times: Sequence[float], watch: ProcessorWatch) -> None:
        """A round, as the moments of its reports and what its processes took."""
        pairs = zip(report_times[WARMUP_STEPS - 1 :], report_times[WARMUP_STEPS:], strict=False)
        self.rounds.append([1000 * (after - before) for before, after in pairs][:-LAST_STEPS])
        workers, others = watch.per_step(report_times)
        self.of_workers.append(1000 * workers)
        self.of_others.append(1000 * others)

    def row(self) -> str:
        """Its line of the table."""
        workers, others = Spread.of(self.of_workers).show(1), Spread.of(self.of_others).show(1)
        return f"| {self.name} | {self.medians().show(1)} | {self.best():.1f} | {workers} | {others} |"

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
    runs = Runs(Home(home), num_cpus=int(options["num_workers"]))
    under_ray, under_torchrun = Launcher("Ray Train", "RayTrainWorker"), Launcher("torchrun", "training.worker")

    def plan(**changes: Any) -> RunPlan:
        fields = {**options, "evaluate": False, "name_voice": False, **changes}
        return runs.plan(RunRequest(dataset=dataset, voice="Ann", model=str(model), preset="quick", options=fields))

    def start(**changes: Any) -> str:
        return runs.start(plan(**changes), Consent.give("Ann"))

    # Planned as Ray's are; only torchrun does it.
    job = plan().job
    turns: list[Callable[[int], None]] = [
        lambda number: finish_one(runs, start, under_ray),
        lambda number: run_torchrun(job, folder / f"torchrun-{number}", under_torchrun),
    ]
    for number in range(num_rounds):
        for turn in turns if number % 2 else reversed(turns):
            turn(number)
    seconds = time_to_cancel(runs, start(num_steps=100_000))
    ratio = 100 * (under_ray.best() / under_torchrun.best() - 1)
    processor = [
        100 * (of_many(under_ray.of_workers) / of_many(under_torchrun.of_workers) - 1)
        for of_many in (min, statistics.median)
    ]
    about = HOW_TO_READ.format(**options, warmup=WARMUP_STEPS, num_rounds=num_rounds)
    lines = [
        "## Ray Train and torchrun",
        "",
        about,
        "",
        "| started by | ms per step | best, ms per step | processor time of the workers, ms | of the others, ms |",
        "|---|---|---|---|---|",
        *(one.row() for one in (under_torchrun, under_ray)),
        "",
        f"Ray Train against torchrun, per step: {ratio:+.1f} % of time, best against best; {processor[0]:+.1f} % of "
        f"the workers' processor time in the best rounds, {processor[1]:+.1f} % in the median ones.",
    ]
    return [*lines, "", f"From a cancel to the end of every process of the run: {seconds:.1f} s."]


def run_torchrun(job: FineTuneJob, folder: Path, launcher: Launcher) -> None:
    """Do the job that Ray does."""
    folder.mkdir()
    again = job.model_copy(update={"output": folder / "run"})
    again.write(folder / "job.json")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.num_workers}"]
    command += ["-m", "training.worker", str(folder / "job.json")]
    # In a session of its own, as a run has one: Linux shares processors out by sessions first.
    watch = ProcessorWatch(launcher.worker)
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while process.poll() is None:
            watch.look(process.pid)
            time.sleep(POLL_SECONDS)
    if process.returncode:
        raise RuntimeError(f"torchrun ended with status {process.returncode}")
    lines = (again.output / "log.jsonl").read_text().splitlines()
    launcher.add([float(json.loads(line)["at"]) for line in lines], watch)


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


def finish_one(runs: Runs, start: Callable[[], str], launcher: Launcher) -> None:
    """Start runs until one comes to its end: on a crowded machine Ray does not always start within its own time."""
    for _ in range(MAX_ATTEMPTS):
        watch, run_id = ProcessorWatch(launcher.worker), start()
        while not is_over(runs, run_id):
            if (leader := runs.get(run_id).process_id) is not None:
                watch.look(leader)
            time.sleep(POLL_SECONDS)
        if runs.get(run_id).state is RunState.DONE:
            launcher.add([float(line["at"]) for line in lines_of(runs, run_id)], watch)
            return
    raise RuntimeError(f"no run was done: {runs.get(run_id).message}")


def is_over(runs: Runs, run_id: str) -> bool:
    """Whether a run has come to its end."""
    return not runs.get(run_id).state.is_active


def wait_for(reached: Callable[[], bool]) -> None:
    """Poll, politely."""
    while not reached():
        time.sleep(POLL_SECONDS)
