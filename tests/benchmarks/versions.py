"""Whether one version of the program is slower than another: two checkouts, measured in turns.

    python -m tests.benchmarks.versions --first OLD_CHECKOUT --second NEW_CHECKOUT --rounds 5 --output REPORT.md

Only what a person or another program can see of a version is used: the command line, HTTP, and `training.worker` with
a job file. Both versions are given the same dataset and the same voice, which the first one has made, so the second
one has to open them. What starts anew each time is started in turns, and what answers requests is asked in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import soundfile

from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import Spread, ratios
from tests.ui.app_process import free_port

PATIENCE_SECONDS = 900.0
TEXT = "The harbour was quiet, and the boats lay still."
NUM_RECORDINGS = 6
WARM_UP_STEPS = 2
VOICE, DATASET = "Bench", "bench"

START, PAGE, CLONE, CLONE_WORK, STEP, TAKE = (
    "`python app.py` until the page and its configuration come",
    "page, once it is warm",
    "`app.py clone` of one sentence",
    "`app.py clone`, processor time",
    "training step",
    "take through the API",
)
UNITS: Mapping[str, tuple[str, float, int]] = {
    START: ("s", 1.0, 2),
    PAGE: ("ms", 1e3, 1),
    CLONE: ("s", 1.0, 2),
    CLONE_WORK: ("s", 1.0, 2),
    STEP: ("ms", 1e3, 1),
    TAKE: ("ms", 1e3, 0),
}
"""Unit, how many of it are a second, digits."""


@dataclass
class Version:
    """One of the two.

    Attributes:
        name: in the table.
        checkout: its folder, in which everything is started.
        python: what runs it.
        worker: its module that trains from a job file.
        home: where it stores what it makes.
        rounds: seconds by measure, a list for each round.
    """

    name: str
    checkout: Path
    python: str
    worker: str
    home: Path
    rounds: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def environment(self) -> dict[str, str]:
        """Of everything that is started."""
        quiet = {"HF_HUB_OFFLINE": "1", "GRADIO_ANALYTICS_ENABLED": "False", "ENCORE_HOME": str(self.home)}
        return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")} | quiet

    def run(self, *arguments: str | Path, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        """Run a command to its end. Raises RuntimeError with its last words when it fails."""
        command = [self.python, *map(str, arguments)]
        done = subprocess.run(
            command,
            cwd=self.checkout,
            env=self.environment | dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_SECONDS,
            check=False,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}, {' '.join(command[1:4])}: {done.stdout[-3000:]}")

    @contextlib.contextmanager
    def serving(self, *arguments: str, variables: Mapping[str, str]) -> Iterator[None]:
        """Something that serves, until the block ends."""
        log = self.home / "served.txt"
        with log.open("w") as output:
            process = subprocess.Popen(
                [self.python, *arguments],
                cwd=self.checkout,
                env=self.environment | dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                yield
                if process.poll() is not None:
                    raise RuntimeError(f"{self.name} ended by itself: {log.read_text()[-3000:]}")
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--first", type=Path, required=True, metavar="CHECKOUT", help="what to compare with")
    parser.add_argument("--second", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--python", default=sys.executable, help="runs both (default: the one that runs this)")
    parser.add_argument("--first-worker", default="training.worker", metavar="MODULE")
    parser.add_argument("--second-worker", default="training.worker", metavar="MODULE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20, help="for the page, of each round")
    parser.add_argument("--takes", type=int, default=4, help="through the API, of each round")
    parser.add_argument("--steps", type=int, default=10, help=f"of each round, after {WARM_UP_STEPS} that do not count")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="encore-versions-") as name:
        folder = Path(name)
        first, second = (
            Version(title, checkout.absolute(), options.python, worker, folder / f"home-{title}")
            for title, checkout, worker in (
                ("first", options.first, options.first_worker),
                ("second", options.second, options.second_worker),
            )
        )
        prepare(first, second, folder)
        for number in range(options.rounds):
            # Who goes first finds the machine in another state than who follows.
            turns = [first, second] if number % 2 == 0 else [second, first]
            (folder / f"round-{number}").mkdir()
            for measure, count in (
                (measure_page, options.requests),
                (measure_clone, 1),
                (measure_steps, options.steps),
                (measure_takes, options.takes),
            ):
                measure(turns, folder / f"round-{number}", count)
                told = {title: rounds[-1:] for title, rounds in second.rounds.items() if len(rounds) > number}
                print(f"round {number + 1} of {options.rounds}, second: {told}", file=sys.stderr, flush=True)
    report = write_report(options, first, second)
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def prepare(first: Version, second: Version, folder: Path) -> None:
    """Recordings, and a voice and a dataset of them; made by the first version, copied to the second."""
    first.home.mkdir()
    voices = first.checkout / "assets" / "voices"
    voice = json.loads((voices / "voices.json").read_text(encoding="utf-8"))["voices"][0]
    samples, rate = soundfile.read(voices / voice["recording"])
    recordings = folder / "recordings"
    recordings.mkdir()
    for number, sentence in enumerate(voice["sentences"][:NUM_RECORDINGS]):
        begin, end = (round(sentence[f"{side}_seconds"] * rate) for side in ("start", "end"))
        soundfile.write(recordings / f"{number}.wav", samples[begin:end], rate)
        (recordings / f"{number}.txt").write_text(sentence["text"], encoding="utf-8")
    consent = ("--consent", "synthetic", "--consent-by", "Benchmark")
    first.run("app.py", "voices", "add", VOICE, "--recording", recordings / "0.wav", *consent)
    first.run("app.py", "dataset", "build", recordings, "--name", DATASET, "--whisper", "none", "--workers", "0")
    shutil.copytree(first.home, second.home)


def measure_page(turns: Sequence[Version], _: Path, num_requests: int) -> None:
    """From the start to the first answer; then both answer in turns."""
    with contextlib.ExitStack() as running:
        addresses = {}
        for version in turns:
            port = free_port()
            addresses[version.name] = address = f"http://127.0.0.1:{port}/"
            began = time.perf_counter()
            running.enter_context(version.serving("app.py", variables={"ENCORE_PORT": str(port)}))
            wait_for(address)
            wait_for(f"{address}config")
            version.rounds[START].append([time.perf_counter() - began])
        # The first one of each still loads the model meanwhile, and answers slowly.
        time.sleep(5)
        seconds: dict[str, list[float]] = defaultdict(list)
        for number in range(num_requests + 1):
            for version in turns:
                taken = ask(addresses[version.name])
                if number:
                    seconds[version.name].append(taken)
        for version in turns:
            version.rounds[PAGE].append(seconds[version.name])


def measure_clone(turns: Sequence[Version], folder: Path, num_takes: int) -> None:
    """The whole command, as a person waits for it."""
    output = folder / "clone.wav"
    recording = folder.parent / "recordings" / "0.wav"
    for version in turns:
        seconds, worked = [], []
        for _ in range(num_takes):
            output.unlink(missing_ok=True)
            began, before = time.perf_counter(), work_of_children()
            version.run(
                *("app.py", "clone", "--reference", recording, "--text", TEXT, "--output", output, "--seed", "1"),
                *("--consent", "synthetic", "--consent-by", "Benchmark"),
            )
            seconds.append(time.perf_counter() - began)
            worked.append(work_of_children() - before)
            assert output.is_file()
        version.rounds[CLONE].append(seconds)
        version.rounds[CLONE_WORK].append(worked)


def measure_steps(turns: Sequence[Version], folder: Path, num_steps: int) -> None:
    """What lies between the reports of two steps; both train at once, each with one thread.

    Steps of one after the other would be compared at times when the machine is busy with other things, or is not.
    """
    with ThreadPoolExecutor(len(turns)) as pool:
        for done in [pool.submit(_train, version, folder, num_steps) for version in turns]:
            done.result()
    for version in turns:
        lines = (folder / version.name / "log.jsonl").read_text(encoding="utf-8").splitlines()
        moments = [json.loads(line)["at"] for line in lines]
        # The last report waits for the checkpoint.
        gaps = [after - before for before, after in itertools.pairwise(moments)]
        version.rounds[STEP].append(gaps[WARM_UP_STEPS - 1 : -1])


def _train(version: Version, folder: Path, num_steps: int) -> None:
    dataset = version.home / "datasets" / DATASET
    job = {
        "voice": VOICE,
        "dataset": str(dataset),
        "dataset_digest": json.loads((dataset / "dataset.json").read_text(encoding="utf-8"))["digest"],
        "base_model": str(version.checkout / "assets" / "mini"),
        "output": str(folder / version.name),
        "device": "cpu",
        "precision": "fp32",
        "num_steps": num_steps + WARM_UP_STEPS + 1,
        "micro_batches": 1,
        "micro_batch_rows": 256,
        "checkpoint_every": 10_000,
        "export_at_end": False,
    }
    file = folder / f"{version.name}.json"
    file.write_text(json.dumps(job), encoding="utf-8")
    version.run("-m", version.worker, file, variables={"OMP_NUM_THREADS": "1"})


def measure_takes(turns: Sequence[Version], _: Path, num_takes: int) -> None:
    """A whole take, asked for by its voice's name; both serve at once, and are asked in turns."""
    with contextlib.ExitStack() as running:
        addresses = {}
        for version in turns:
            port = free_port()
            addresses[version.name] = address = f"http://127.0.0.1:{port}/v1/"
            running.enter_context(version.serving("app.py", "serve", "--local", "--port", str(port), variables={}))
            wait_for(f"{address}models")
        seconds: dict[str, list[float]] = defaultdict(list)
        for number in range(num_takes + 1):
            fields = {"voice": VOICE, "input": TEXT, "response_format": "wav", "stream": False, "seed": number}
            for version in turns:
                taken = ask(f"{addresses[version.name]}audio/speech", fields)
                if number:
                    seconds[version.name].append(taken)
        for version in turns:
            version.rounds[TAKE].append(seconds[version.name])


def work_of_children() -> float:
    """Processor time of all processes that have ended: what other programs do hardly shows in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def wait_for(address: str) -> None:
    """Until something answers there as it should. Raises TimeoutError."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        # URLError is an OSError; a refused connection is one inside of it.
        with contextlib.suppress(OSError):
            ask(address)
            return
        time.sleep(0.02)
    raise TimeoutError(f"{address} has not answered for {PATIENCE_SECONDS:g} s.")


def ask(address: str, fields: Mapping[str, object] | None = None) -> float:
    """Seconds until an answer is there as a whole. Raises OSError where there is none, or an error."""
    body = json.dumps(fields).encode() if fields is not None else None
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"} if body else {})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        assert answer.read()
    return time.perf_counter() - began


def table(first: Version, second: Version) -> str:
    """Median and 95th percentile of both, and how much the second takes of the first one's time."""
    lines = [
        "| | first: median | 95 % | second: median | 95 % | second : first, rounds' medians |",
        "|---|---|---|---|---|---|",
    ]
    for measure, (unit, scale, digits) in UNITS.items():
        cells = []
        for version in (first, second):
            values = [value * scale for answers in version.rounds[measure] for value in answers]
            cells += [f"{statistics.median(values):.{digits}f} {unit}", f"{percentile_95(values):.{digits}f} {unit}"]
        medians = [[statistics.median(answers) for answers in one.rounds[measure]] for one in (second, first)]
        quotients = ratios(medians[0], medians[1])
        assert quotients is not None
        lines.append(f"| {measure} | {' | '.join(cells)} | {Spread.of(quotients).show(2)} |")
    return "\n".join(lines)


def percentile_95(values: Sequence[float]) -> float:
    """Below it are 95 of 100; of few values that is the largest."""
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)]


def write_report(options: argparse.Namespace, first: Version, second: Version) -> str:
    """The report as Markdown; of the checkouts only their commits are told."""
    lines = [
        f"# Two versions, {datetime.date.today().isoformat()}",
        "",
        *(f"- {line}" for line in describe_machine("cpu")),
        f"- first: {commit_of(first.checkout)}; second: {commit_of(second.checkout)}",
        f"- model mini; {options.rounds} rounds in turns, in each {options.requests} requests of the page, "
        f"{options.steps} training steps, {options.takes} takes",
        "",
        table(first, second),
    ]
    return "\n".join(lines)


def commit_of(checkout: Path) -> str:
    """What a checkout is at, and whether files are changed."""
    found = [
        subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=False).stdout.strip()
        for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    ]
    return f"{found[0] or 'no commit'}{' with changes' if found[1] else ''}"


if __name__ == "__main__":
    main()
