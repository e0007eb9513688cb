"""The speech API under load from another process: open loop, a crowd beyond its bounds, and a thousand requests.

    python -m tests.benchmarks.serving_http --checkpoint FOLDER --output tests/benchmarks/results/DATE-serving-http.md

Starts `app.py serve --local` with a home of its own and one voice, and asks it over HTTP.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from backend.store.home import Home
from backend.voices.registry import Voices
from backend.voices.samples import get_sample
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.process import MeasuredProcess
from tests.benchmarks.serving_report import crowd_lines, open_loop_table
from training.model.checkpoint.reading import read_speech_tokenizer_config
from training.model.project import PROJECT_FOLDER

SHARE = 0.7
"""Of what the server can do at most, offered by listeners who come when they come."""
STREAMS = (1, 2, 4, 8, 16)
SENTENCES = PROJECT_FOLDER / "assets" / "evaluation" / "sentences.txt"
SAMPLE = "iris"
SHORT_TEXT = "Yes."
LONG_SENTENCES = 30

HOW_TO_READ = """\
Listeners arrive by chance (exponential gaps), at the pace at which as many as the first column says would listen at
once if each heard his sentence in real time: an arrival does not wait for anybody before it. Time to first audio counts
from asking over HTTP. A listener plays sound as it arrives; an underrun is a chunk that came after everything before it
had been played. Throughput is seconds of sound per second until the last listener had heard all. Who is turned away
gets 429."""


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    options = parse_options()
    machine = describe_machine("cpu")
    with tempfile.TemporaryDirectory(prefix="encore-benchmark-") as folder:
        server, address = start_server(options, Path(folder))
        try:
            setup = {
                "address": address,
                "voice": SAMPLE,
                "sentences": SENTENCES.read_text(encoding="utf-8").splitlines(),
                "sample_rate": read_speech_tokenizer_config(options.checkpoint).output_sample_rate,
            }
            crowd = MeasuredProcess("listeners", [sys.executable, "-m", "tests.benchmarks.open_loop"], setup, 1)
            try:
                crowd.ready()
                report = measure(options, machine, crowd, psutil.Process(server.pid))
            finally:
                crowd.close()
        finally:
            server.terminate()
            server.wait()
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving_http", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--checkpoint", required=True, type=Path, help="a checkpoint folder that can clone")
    parser.add_argument("--slots", type=int, default=8, help="of the engine")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long listeners arrive at each load")
    parser.add_argument("--crowd", type=int, default=120, help="requests at once that are more than is accepted")
    parser.add_argument("--requests", type=int, default=1000, help="for the memory")
    parser.add_argument("--output", type=Path, help="write the report here as well")
    return parser.parse_args()


def start_server(options: argparse.Namespace, folder: Path) -> tuple[subprocess.Popen[str], str]:
    """The API in a process of its own, with one voice cloned in context."""
    sample, home = get_sample(SAMPLE), folder / "home"
    reference = sample.reference_in(home)
    Voices(Home(home)).create_zero_shot(
        SAMPLE, reference, consent=sample.consent(), model=str(options.checkpoint), transcript=sample.reference_text
    )
    server = subprocess.Popen(
        [sys.executable, "app.py", "serve", "--local", "--port", "0", "--voice", SAMPLE, "--model",
         str(options.checkpoint), "--num-slots", str(options.slots)],
        cwd=PROJECT_FOLDER, env={**os.environ, "ENCORE_HOME": str(home)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line.startswith("Speech API: "):
        raise RuntimeError(f"the server did not start: {line!r}")
    return server, line.split()[2].removesuffix("/v1")


def measure(options: argparse.Namespace, machine: Sequence[str], crowd: MeasuredProcess, server: psutil.Process) -> str:
    """All loads, and the report."""
    # Warms up, and says how long a sentence is.
    warm = heard_of(crowd.ask({"seed": 1, "count": 4}))
    mean_seconds = sum(one["sound_seconds"] for one in warm) / len(warm)
    loads = {}
    for streams in STREAMS:
        question = {"seed": 100 + streams, "seconds": options.seconds, "per_second": streams / mean_seconds}
        loads[streams] = crowd.ask(question)
        print(f"\r{streams} streams ", end="", file=sys.stderr, flush=True)
    share = share_lines(crowd, options.slots, options.seconds, mean_seconds)
    memory = [server.memory_info().rss]
    flood = crowd.ask({"seed": 7, "count": options.crowd, "text": SHORT_TEXT})
    memory.append(server.memory_info().rss)
    served = 0
    for part in range(4):
        answer = crowd.ask(
            {"seed": 20 + part, "count": options.requests // 4, "at_once": options.slots, "text": SHORT_TEXT}
        )
        served += sum(one["status"] == 200 for one in heard_of(answer))
        memory.append(server.memory_info().rss)
        print(f"\r{(part + 1) * options.requests // 4} requests ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    name = options.checkpoint.resolve().name
    lines = [
        f"# Serving over HTTP, {name}, CPU",
        "",
        f"{datetime.datetime.now(tz=datetime.UTC).date()}, "
        f"`python -m tests.benchmarks.serving_http --checkpoint {name} --slots {options.slots} "
        f"--seconds {options.seconds:.0f} --crowd {options.crowd} --requests {options.requests}`",
        "",
        *(f"- {line}" for line in machine),
        f"- {options.slots} slots, one voice cloned in context; a sentence lasts {mean_seconds:.1f} s",
        "",
        HOW_TO_READ,
        "",
        open_loop_table({streams: (load["wall_seconds"], heard_of(load)) for streams, load in loads.items()}),
        "",
        *share,
        "",
        *crowd_lines(heard_of(flood), flood["wall_seconds"], served, options.requests, memory),
    ]
    return "\n".join(lines)


def share_lines(crowd: MeasuredProcess, slots: int, seconds: float, mean_seconds: float) -> list[str]:
    """What a part of all that the server can do is like to listen to, alone and beside a long text."""
    full = crowd.ask({"seed": 50, "count": 4 * slots, "at_once": slots})
    capacity = sum(one["sound_seconds"] for one in heard_of(full)) / full["wall_seconds"]
    question = {"seed": 300, "seconds": 2 * seconds, "per_second": SHARE * capacity / mean_seconds}
    alone = crowd.ask(question)
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()[:LONG_SENTENCES]
    mixed = crowd.ask(question | {"seed": 400, "long_text": " ".join(sentences)})
    table = open_loop_table(
        {
            f"{SHARE:.0%}": (alone["wall_seconds"], heard_of(alone)),
            f"{SHARE:.0%} and a long text": (mixed["wall_seconds"], heard_of(mixed)),
            "the long text": (mixed["wall_seconds"], heard_of(mixed)[:1]),
        }
    )
    return [
        f"{slots} listeners at a time, each with the next sentence once the last is over, get {capacity:.1f} s/s. "
        f"{SHARE:.0%} of that, in listeners who come when they come; then the same with one who listens to "
        f"{LONG_SENTENCES} sentences in one request, who is the last line alone. Everybody's sound is judged twice: "
        "played from its first chunk on, and from where the lead is in hand that the server has told.",
        "",
        table,
    ]


def heard_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """What each listener experienced."""
    heard: list[dict[str, Any]] = answer["heard"]
    return heard


if __name__ == "__main__":
    main()
