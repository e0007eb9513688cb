"""Everything that only a GPU can show, in one command that a person runs once and sends the results of.

    python -m tests.benchmarks.gpu --minutes 20 --output DIR

DIR gets `results.json` and `report.md`, which are written anew after every part. A part that fails or takes too long
costs the others nothing. What this Python lacks is named before anything starts. `--rehearse` does all of it on a
processor, with tiny networks: to see that it works, not how fast it is.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu.part_process import REPOSITORY, Outcome, run_part
from tests.benchmarks.gpu.plan import PARTS, Part, missing_of, say_what_is_missing
from tests.benchmarks.gpu.report import write_report

REHEARSED_SHAPES = "1.7b"
RESULTS_FILE, REPORT_FILE = "results.json", "report.md"
_NAMED_PACKAGES = (
    *("torch", "numpy", "triton", "safetensors", "pydantic", "transformers", "pyarrow", "soundfile", "soxr"),
    *("pytest", "hypothesis", "psutil", "ray", "gradio", "deepspeed", "qwen-tts", "faster-qwen3-tts", "flash-attn"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts by their priority; 0 if none of them failed, 2 where nothing can be measured."""
    options = parse_options(arguments)
    for line in say_what_is_missing():
        print(line)
    if missing_of(["torch"]):
        return 2
    num_gpus = 0 if options.rehearse else count_gpus()
    if not num_gpus and not options.rehearse:
        print("torch finds no CUDA device here. Check nvidia-smi, or try it with --rehearse.", file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * options.minutes
    results = describe(options, num_gpus)
    with tempfile.TemporaryDirectory(prefix="encore-gpu-", dir=options.scratch) as scratch:
        for part in PARTS:
            if options.only and part.name not in options.only:
                continue
            print(f"{part.title} ...", flush=True)
            outcome = run_one(part, options, num_gpus, Path(scratch), ends - time.monotonic())
            print(f"  {outcome.state} {outcome.why.splitlines()[-1] if outcome.why else ''}", flush=True)
            results["parts"][part.name] = {"title": part.title, **outcome.to_json()}
            write(options.output, results)
    print(f"Please send back {options.output / RESULTS_FILE} and {options.output / REPORT_FILE}.")
    return int(any(part["state"] == "failed" for part in results["parts"].values()))


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20, help="to spend; the parts that tell most come first")
    parser.add_argument("--output", type=Path, required=True, help="a folder for the results")
    parser.add_argument(
        "--only", action="append", choices=[part.name for part in PARTS], help="repeatable: these parts"
    )
    parser.add_argument("--reference-python", help="an interpreter with qwen-tts, which pins an old transformers")
    parser.add_argument("--faster-python", help="an interpreter with faster-qwen3-tts, which needs a new one")
    parser.add_argument("--scratch", type=Path, help="a folder with room for 6 GB of random weights")
    parser.add_argument("--rehearse", action="store_true", help="on the processor, with tiny networks")
    return parser.parse_args(arguments)


def count_gpus() -> int:
    """In a process of its own, which takes no memory of them."""
    command = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else 0


def describe(options: argparse.Namespace, num_gpus: int) -> dict[str, Any]:
    """What the results begin with."""
    commit = ["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"]
    git = shutil.which("git")
    revision = subprocess.run(commit, capture_output=True, text=True, check=False).stdout.strip() if git else ""
    return {
        "began": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M}",
        "minutes": options.minutes,
        "rehearsed": options.rehearse,
        "num_gpus": num_gpus,
        "revision": revision,
        "packages": {name: found for name in _NAMED_PACKAGES if (found := _version(name))},
        "missing": say_what_is_missing(),
        "parts": {},
    }


def run_one(part: Part, options: argparse.Namespace, num_gpus: int, scratch: Path, seconds_left: float) -> Outcome:
    """Run a part, unless something or the time for it is missing."""
    if missing := part.missing():
        return Outcome(state="left out", why=f"pip install {' '.join(missing)}")
    if part.is_for_many_gpus and num_gpus == 1:
        return Outcome(state="left out", why="There is one GPU.")
    if seconds_left < part.min_seconds:
        return Outcome(state="left out", why="There was no time left for it; give more --minutes.")
    setup = {**make_setup(options, num_gpus), **part.setup}
    if options.rehearse and "shapes" in setup:
        if setup["shapes"] != REHEARSED_SHAPES:
            return Outcome(state="left out", why="A rehearsal has but one, tiny network.")
        setup["shapes"] = str(REPOSITORY / "tests" / "golden" / "qwen3-tts-tiny")
    folder = scratch / part.name
    module = f"tests.benchmarks.gpu.parts.{part.module}"
    outcome = run_part(module, setup, folder, limit_seconds=min(part.max_seconds, seconds_left))
    # Random weights take gigabytes, and no other part needs them.
    shutil.rmtree(folder, ignore_errors=True)
    return outcome


def make_setup(options: argparse.Namespace, num_gpus: int) -> dict[str, Any]:
    """What all parts are told."""
    shared = {
        "is_tiny": options.rehearse,
        "pythons": {"qwen-tts": options.reference_python, "faster-qwen3-tts": options.faster_python},
        "tests": ["tests/training"],
    }
    if options.rehearse:
        sizes = {"frames": 2, "max_rounds": 1, "max_frames": 4, "takes": 1, "streams": [2], "max_steps": 2}
        one_file = {"tests": ["tests/training/model/test_cuda.py"]}
        machine = {"device": "cpu", "threads": 1, "workers": 2, "precisions": ["fp32"], "micro_batch_tokens": 512}
        return {**shared, **one_file, **sizes, **machine}
    return {
        **shared,
        "device": "cuda",
        "threads": max(1, (os.cpu_count() or 2) // max(1, num_gpus)),
        "workers": num_gpus,
        "precisions": ["bf16"],
        "micro_batch_tokens": 4096,
        "frames": 16,
        "max_rounds": 20,
        "max_steps": 30,
        "max_frames": 60,
        "takes": 2,
        "streams": [1, 8, 32, 128],
    }


def write(folder: Path, results: dict[str, Any]) -> None:
    """Both files, each of them whole at any time."""
    for name, text in ((RESULTS_FILE, json.dumps(results, indent=1)), (REPORT_FILE, write_report(results))):
        unfinished = folder / f"{name}.unfinished"
        unfinished.write_text(text + "\n", encoding="utf-8")
        os.replace(unfinished, folder / name)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
