"""How fast frames are decoded, beside the public reference package.

    python -m tests.benchmarks.decode --shapes 0.6b --precision fp32 --precision int8 --threads 2 \\
        --reference-python PYTHON --output tests/benchmarks/results/DATE-decode-0.6b.md

PYTHON is an interpreter with `qwen-tts` installed; without it only our own loop is measured.
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
from tests.benchmarks.report import Party, Round, table
from tests.benchmarks.shapes import Shapes, read_shapes

FRAMES_PER_ROUND = 4
PROMPT_ROWS = 60
"""A sentence of some 50 tokens and the rows around it."""

REFERENCE = "reference"

HOW_TO_READ = """\
Milliseconds, per frame ({frame_milliseconds:.0f} ms of audio) in the first six lines. Each number is the median over
{num_rounds} rounds of {frames} frames, with the smallest and the largest round. In every round each column had its
turn, in a process of its own, so ratios compare what ran within seconds of each other. Weights are random, sampling is
the public checkpoints' default, takes start from a prompt of {rows} rows. Real-time factor: a frame and its share of a
codec call of four frames, by the time they last. Time to first audio: prefill, first frame, codec of one frame."""


def main() -> None:
    """Measure, print the report and write it to a file if asked to."""
    options = parse_options()
    shapes = read_shapes(options.shapes)
    processes = start_processes(options, shapes)
    try:
        machine = describe_machine(options.device)
        abouts = {name: process.ready() for name, process in processes.items()}
        rounds = take_turns(list(processes.values()), num_rounds=-(-options.frames // FRAMES_PER_ROUND))
    finally:
        for process in processes.values():
            process.close()
    report = write_report(options, shapes, machine, abouts, rounds)
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.decode", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--shapes", default="0.6b", help="0.6b, 1.7b or a checkpoint folder; weights are random in any case"
    )
    parser.add_argument(
        "--precision", action="append", choices=["fp32", "bf16", "int8"], help="repeatable; default fp32, int8"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each process; only one works at a time")
    parser.add_argument("--frames", type=int, default=40, help=f"to measure, {FRAMES_PER_ROUND} per round")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--reference-python", help="an interpreter that has the package qwen-tts")
    parser.add_argument("--output", type=Path, help="write the report here as well")
    options = parser.parse_args()
    options.precision = options.precision or (["fp32", "int8"] if options.device == "cpu" else ["bf16"])
    return options


def start_processes(options: argparse.Namespace, shapes: Shapes) -> dict[str, MeasuredProcess]:
    """The reference first, then our precisions; they are built side by side."""
    setup = {
        "model": shapes.model,
        "threads": options.threads,
        "device": options.device,
        "frames": FRAMES_PER_ROUND,
        "prompt_rows": PROMPT_ROWS,
    }
    processes = {}
    if options.reference_python:
        command = [options.reference_python, str(Path(__file__).with_name("reference_decode.py"))]
        processes[REFERENCE] = MeasuredProcess(REFERENCE, command, setup, options.threads)
    ours = {**setup, "speech_tokenizer": shapes.speech_tokenizer}
    for precision in options.precision:
        command = [sys.executable, "-m", "tests.benchmarks.frame_worker"]
        processes[precision] = MeasuredProcess(precision, command, {**ours, "precision": precision}, options.threads)
    return processes


def take_turns(processes: Sequence[MeasuredProcess], num_rounds: int) -> dict[str, list[Round]]:
    """Ask everyone once per round, in alternating order; a first round that does not count warms up."""
    rounds: dict[str, list[Round]] = {process.name: [] for process in processes}
    for number in range(num_rounds + 1):
        for process in processes if number % 2 else reversed(processes):
            answer = process.ask({})
            if number > 0:
                rounds[process.name].append(answer)
        print(f"\rround {number} of {num_rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rounds


def write_report(
    options: argparse.Namespace,
    shapes: Shapes,
    machine: Sequence[str],
    abouts: dict[str, dict[str, Any]],
    rounds: dict[str, list[Round]],
) -> str:
    """The result as Markdown, with everything needed to judge and repeat it."""
    parties = [
        Party(f"{name}, codec {about['codec']}", rounds[name], about["frame_milliseconds"])
        for name, about in abouts.items()
        if name != REFERENCE
    ]
    reference, whom = None, "No reference was measured."
    if about := abouts.get(REFERENCE):
        reference = Party(f"qwen-tts {about['dtype']}", rounds[REFERENCE], parties[0].frame_milliseconds)
        whom = (
            f"The reference is the talker and code predictor of `qwen-tts` {about['package']}, driven by its own "
            f"generation loop: transformers {about['transformers']}, torch {about['torch']}, {about['dtype']}, "
            f"{about['attention']} attention (its default). It cannot stream, so there is no first audio to time, and "
            "its speech tokenizer is not loaded."
        )
    precisions = " ".join(f"--precision {name}" for name in options.precision)
    command = f"--shapes {Path(options.shapes).name} {precisions} --threads {options.threads} --frames {options.frames}"
    lines = [
        f"# Decoding, {shapes.name}, {options.threads} threads, {options.device}",
        "",
        f"{datetime.datetime.now(tz=datetime.UTC).date()}, `python -m tests.benchmarks.decode {command}`",
        "",
        *(f"- {line}" for line in machine),
        "",
        HOW_TO_READ.format(
            frame_milliseconds=parties[0].frame_milliseconds,
            num_rounds=len(parties[0].rounds),
            frames=FRAMES_PER_ROUND,
            rows=PROMPT_ROWS,
        ),
        "",
        whom,
        "",
        table(parties, reference, PROMPT_ROWS),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
