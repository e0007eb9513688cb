"""How many listeners one model serves at once: the engine against one take at a time.

    python -m tests.benchmarks.serving --checkpoint FOLDER --threads 2 --output tests/benchmarks/results/DATE-serving.md

Both parties run in processes of their own and take turns. So many streams means so many listeners, each of whom asks
for a sentence, plays it as it comes, and asks for the next.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.machine import describe_machine
from tests.benchmarks.process import MeasuredProcess
from tests.benchmarks.serving_report import Load, serving_table

STREAMS = (1, 2, 4, 8, 16)
PARTIES = ("one at a time", "engine")

HOW_TO_READ = """\
Each number is the median over {rounds} rounds, with the smallest and largest round; in every round each party served
{takes} sentences to each listener, in alternating order. Throughput is seconds of sound made per second; what a second
of processor time makes stands beside it, and tells the same where other programs share the processor. Time to first
audio counts from asking, the wait for one's turn included: median and 95th percentile over all takes of a round. A
listener plays sound as it arrives; an underrun is a chunk that came after everything before it had been played. One at
a time means a lock around the single-take loop, whoever comes first; its listeners hear nothing while they wait."""


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    options = parse_options()
    setup = {
        "checkpoint": options.checkpoint,
        "shapes": options.shapes,
        "precision": options.precision,
        "device": options.device,
        "threads": options.threads,
        "slots": options.slots,
        "cache": options.cache,
        "max_frames": options.max_frames,
    }
    processes = [
        MeasuredProcess(
            party, [sys.executable, "-m", "tests.benchmarks.serving_worker"], {**setup, "party": party}, options.threads
        )
        for party in PARTIES
    ]
    try:
        machine = describe_machine(options.device)
        about = [process.ready() for process in processes][-1]
        loads = take_turns(processes, options)
    finally:
        for process in processes:
            process.close()
    report = write_report(options, machine, about, loads)
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving", description=(__doc__ or "").split("\n")[0]
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--checkpoint", help="a checkpoint folder, spoken with its own weights")
    what.add_argument("--shapes", help="0.6b or 1.7b: public shapes with random weights, which never end by themselves")
    parser.add_argument("--precision", default="auto", choices=["auto", "fp32", "bf16", "int8"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each process; only one works at a time")
    parser.add_argument("--streams", type=int, action="append", help=f"repeatable; default {STREAMS}")
    parser.add_argument("--slots", type=int, default=16, help="of the engine")
    parser.add_argument("--cache", type=int, default=1024, help="steps per slot")
    parser.add_argument("--takes", type=int, default=2, help="sentences per listener and round")
    parser.add_argument(
        "--max-frames", type=int, default=60, help="a sentence is cut off after so many frames of 80 ms"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="write the report here as well")
    options = parser.parse_args()
    options.streams = tuple(options.streams or STREAMS)
    return options


def take_turns(processes: Sequence[MeasuredProcess], options: argparse.Namespace) -> dict[tuple[str, int], list[Load]]:
    """Every party under every load, round by round; a first round with one take each warms up."""
    loads: dict[tuple[str, int], list[Load]] = {}
    for number in range(options.rounds + 1):
        for streams in options.streams:
            for process in processes if number % 2 else reversed(processes):
                answer = process.ask({"streams": streams, "takes": options.takes if number else 1, "round": number})
                if number:
                    loads.setdefault((process.name, streams), []).append(Load(**answer))
                print(f"\rround {number} of {options.rounds}, {streams} streams ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return loads


def write_report(
    options: argparse.Namespace,
    machine: Sequence[str],
    about: dict[str, Any],
    loads: dict[tuple[str, int], list[Load]],
) -> str:
    """The result as Markdown, with everything needed to judge and repeat it."""
    what = f"--shapes {options.shapes}" if options.shapes else f"--checkpoint {Path(options.checkpoint).resolve().name}"
    rest = (
        f"--precision {options.precision} --threads {options.threads} --slots {options.slots} --takes {options.takes}"
    )
    lines = [
        f"# Serving, {what.split()[1]}, {about['precision']}, {options.threads} threads, {options.device}",
        "",
        f"{datetime.datetime.now(tz=datetime.UTC).date()}, `python -m tests.benchmarks.serving {what} {rest} "
        f"--max-frames {options.max_frames} --rounds {options.rounds}`",
        "",
        *(f"- {line}" for line in machine),
        f"- Talker {about['talker_parameters'] / 1e6:.1f} million parameters, {about['slots']} slots",
        "",
        HOW_TO_READ.format(rounds=options.rounds, takes=options.takes),
        "",
        serving_table(loads, PARTIES, options.streams),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
