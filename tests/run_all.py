"""Every test that can run here, tier after tier, and what became of them: `make test`.

What needs a browser runs after the others, and last, one by one, what needs a cluster or several processes. A test
that fails is tried again, for a machine busy with something else can keep processes from answering in time; the summary
names what passed only then. All tiers run, also where one has failed. Arguments are pytest's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

TALLY_VARIABLE = "ENCORE_TEST_TALLY"
"""Names the file into which tests/conftest.py writes what became of the tests of one pytest run."""

LARGE = "ray or browser or deepspeed"
MANY_PROCESSES = "ray or deepspeed"
# In the order of tests/conftest.py, which puts the longest files first.
TWO_WORKERS = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
TIERS = {
    "default": [*TWO_WORKERS, "-m", f"not ({LARGE})", "--reruns", "1"],
    "browser": [*TWO_WORKERS, "-m", f"browser and not ({MANY_PROCESSES})", "--reruns", "2"],
    "large": ["-m", MANY_PROCESSES, "--reruns", "2"],
}
PYTEST_INTERRUPTED, PYTEST_FOUND_NO_TEST = 2, 5


def run_tier(options: list[str], arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Pytest's exit status, and its tally; an empty one if it could not say."""
    with tempfile.TemporaryDirectory(prefix="encore-tally-") as folder:
        tally = Path(folder, "tally.json")
        command = [sys.executable, "-m", "pytest", "--durations=25", *narrowed(options, arguments)]
        status = subprocess.run(command, env=os.environ | {TALLY_VARIABLE: str(tally)}, check=False).returncode
        return status, json.loads(tally.read_text(encoding="utf-8")) if tally.is_file() else {}


def narrowed(options: list[str], arguments: list[str]) -> list[str]:
    """Both together; where both choose by marks, only what both choose: pytest would forget the tier's own choice."""
    if "-m" not in options or "-m" not in arguments[:-1]:
        return [*options, *arguments]
    own, asked = options.index("-m") + 1, arguments.index("-m") + 1
    marks = f"({options[own]}) and ({arguments[asked]})"
    return [*options[: own - 1], *options[own + 1 :], *arguments[: asked - 1], *arguments[asked + 1 :], "-m", marks]


def main(arguments: list[str]) -> int:
    """Run all tiers; returns 0 only if nothing failed."""
    total: Counter[str] = Counter()
    lines, worst = [], 0
    for tier, options in TIERS.items():
        print(f"\n=== tier {tier}: pytest {' '.join(options)}", flush=True)
        status, tally = run_tier(options, arguments)
        counts = Counter(tally.get("counts", {}))
        if status == PYTEST_FOUND_NO_TEST:
            status = 0
        elif status and not counts["failed"]:
            counts["failed"] = 1  # pytest itself: a file that cannot be read, a crash, a test that hung
            lines.append(f"{tier}: pytest ended with status {status}; see above")
        lines.append(f"{tier}: {describe(counts)}")
        for outcome, names in (("failed", "failed"), ("passed when tried again", "tried_again")):
            for name in tally.get(names, ()):
                lines.append(f"    {outcome}: {name}")
                lines += [f"        before: {error}" for error in tally["earlier_errors"].get(name, ())]
        lines += [f"    skipped {number}: {reason}" for reason, number in tally.get("skipped", {}).items()]
        total += counts
        worst = worst or status
        if status == PYTEST_INTERRUPTED:
            break
    print("\n=== summary", *lines, describe(total), sep="\n", flush=True)
    return worst


def describe_tally(tally: dict[str, Any]) -> str:
    """One line of numbers from what tests/conftest.py has written."""
    return describe(Counter(tally["counts"]))


def describe(counts: Counter[str]) -> str:
    """One line of numbers."""
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
