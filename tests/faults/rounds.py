"""Rounds of attacks until the time is over, and the table of what became of them."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from tests.faults.attack import Attack, LeftOut, Outcome, Result, last_of, left_behind, within
from tests.faults.kinds import KINDS
from tests.faults.world import World

ROUND_SECONDS = 900.0
"""After which everything is ended and made anew: what gathers in a process or a home shows at its end."""
STEP_SECONDS = 900.0
"""A step that takes longer hangs."""
END = "end of a round"


class Tally:
    """What became of all attempts so far."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._counts: dict[str, Counter[str]] = {}
        self._findings: list[str] = []
        self._left_out: dict[str, str] = {}

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost or wrong."""
        return not any(count[Result.LOST] + count[Result.WRONG] for count in self._counts.values())

    def add(self, kind: str, step: int, outcome: Outcome) -> None:
        """Count it, and print it at once if a person has to look at it."""
        count = self._counts.setdefault(kind, Counter())
        count[outcome.result] += 1
        # Beside another outcome of the same attempt.
        count["tried"] += outcome.result is not Result.LEFT_BEHIND
        if outcome.result.is_finding:
            self._findings.append(f"{outcome.result}: {kind}, --seed {self._seed} --kind {kind!r} --step {step}")
            self._findings.append(f"    {outcome.what}")
            print(*self._findings[-2:], sep="\n", flush=True)

    def leave_out(self, kind: str, reason: str) -> None:
        """Say under the table what could not be tried."""
        self._counts.setdefault(kind, Counter())
        self._left_out[kind] = reason

    def table(self) -> str:
        """All of it, as Markdown."""
        columns = ("tried", *Result)
        lines = [f"| attack | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
        rows = [*self._counts.items(), ("all", sum(self._counts.values(), Counter()))]
        lines += [f"| {kind} | {' | '.join(f'{count[name]:,}' for name in columns)} |" for kind, count in rows]
        lines += [f"\n{kind}: left out, {reason}" for kind, reason in self._left_out.items()]
        return "\n".join([*lines, *(["", *self._findings] if self._findings else [])])


def main(arguments: list[str]) -> int:
    """Attack; returns 1 if anything was lost or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="how long; each kind is tried at least once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    parser.add_argument("--kind", action="append", choices=[kind.name for kind in KINDS], help="only this kind")
    parser.add_argument("--step", type=int, help="only this step of it, as a finding names it")
    parser.add_argument("--without-ray", action="store_true", help="start no clusters")
    options = parser.parse_args(arguments)
    chosen = [one for one in KINDS if one.name in options.kind] if options.kind else list(KINDS)
    chosen = [one for one in chosen if not (options.without_ray and one.needs_ray)]
    os.environ.update(HF_HUB_OFFLINE="1", GRADIO_ANALYTICS_ENABLED="False", OMP_NUM_THREADS="1")
    os.environ.pop("RAY_ADDRESS", None)
    for name in [name for name in os.environ if name.startswith("ENCORE_")]:
        del os.environ[name]
    tally = Tally(options.seed)
    began, at = time.monotonic(), datetime.now(UTC)
    attack_until(began + 60 * options.minutes, chosen, options.seed, tally, first_step=options.step)
    took = (time.monotonic() - began) / 60
    head = f"{at:%Y-%m-%d}, {took:.1f} minutes, seed {options.seed}:"
    print("", head, "", tally.table(), sep="\n", flush=True)
    if options.output is not None:
        options.output.write_text(f"{head}\n\n{tally.table()}\n", encoding="utf-8")
    return 0 if tally.is_clean else 1


def attack_until(end: float, kinds: Iterable[Attack], seed: int, tally: Tally, first_step: int | None) -> None:
    """Do steps until the time is over: whichever kind has had least of it for its weight is next."""
    spent = dict.fromkeys(kinds, 0.0)
    steps = dict.fromkeys(spent, first_step or 0)
    while spent:
        with ExitStack() as stack:
            world = _new_world(stack)
            round_ends = time.monotonic() + ROUND_SECONDS
            while spent:
                kind = min(spent, key=lambda one: (spent[one] / one.weight, one.name))
                began = time.monotonic()
                if not _do_step(kind, steps[kind], seed, world, tally):
                    del spent[kind]
                    continue
                steps[kind] += 1
                spent[kind] += time.monotonic() - began
                now = time.monotonic()
                if now >= round_ends or (now >= end and all(spent.values())) or first_step is not None:
                    break
            for outcome in left_behind("what was served has ended", world.close()):
                tally.add(END, 0, outcome)
        if time.monotonic() >= end or first_step is not None:
            return


def _new_world(stack: ExitStack) -> World:
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = None
    os.environ.pop("TMPDIR", None)
    folder = Path(tempfile.mkdtemp(prefix="encore-faults-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    stack.callback(_put_back, *before)
    return World(folder / "world")


def _put_back(directory: str | None, variable: str | None) -> None:
    tempfile.tempdir = directory
    os.environ.pop("TMPDIR", None)
    if variable is not None:
        os.environ["TMPDIR"] = variable


def _do_step(kind: Attack, step: int, seed: int, world: World, tally: Tally) -> bool:
    """Try one step; returns False where this kind cannot be tried here."""
    try:
        with within(STEP_SECONDS):
            for outcome in kind.attack(random.Random(f"{seed}:{kind.name}:{step}"), world):
                tally.add(kind.name, step, outcome)
    except LeftOut as reason:
        tally.leave_out(kind.name, str(reason))
        return False
    except Exception as error:  # noqa: BLE001 - the others are tried all the same, and this one is printed
        tally.add(kind.name, step, Outcome(result=Result.WRONG, what=last_of(error)))
    return True
