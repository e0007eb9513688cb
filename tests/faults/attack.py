"""What every kind of attack is: a name, a weight, and a step that tries something and says what became of it."""

from __future__ import annotations

import random
import re
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType

from backend.errors import EncoreError
from tests.faults.world import World

MAX_SENTENCE = 1000
"""A refusal is a line, not a page."""


class Result(StrEnum):
    """The columns of the table."""

    REFUSED = "refused cleanly"
    RECOVERED = "recovered"
    """It was of no consequence: what was asked for came out as it should, at once or after the next start."""
    LOST = "lost"
    WRONG = "wrong"
    LEFT_BEHIND = "left behind"
    """Beside another result of the same attempt."""

    @property
    def is_finding(self) -> bool:
        """Whether a person has to look at it."""
        return self in (Result.LOST, Result.WRONG, Result.LEFT_BEHIND)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of an attempt; `what` says in words what was tried and, of a finding, what was found."""

    result: Result
    what: str


class LeftOut(Exception):
    """Something that cannot be tried on this machine, and why."""


class TooLong(Exception):
    """Something that did not end within its time."""


Step = Callable[[random.Random, World], Iterator[Outcome]]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A kind of attack.

    Attributes:
        weight: its share of the time.
        attack: one step; everything it does follows from the random numbers it is given.
        needs_ray: whether it starts clusters.
    """

    name: str
    weight: float
    attack: Step
    needs_ray: bool = False


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooLong in the block where it takes longer."""

    def ring(_: int, __: FrameType | None) -> None:
        raise TooLong(f"not done after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    began = time.monotonic()
    left_outside, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        # A block around this one has its own time.
        rest = max(0.01, left_outside - (time.monotonic() - began)) if left_outside else 0.0
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, rest)


def attempt(what: str, call: Callable[[], str | None], world: World, *, seconds: float = 120.0) -> Outcome:
    """Call the product: a refusal is one of its own errors in one line that names no folder of this machine.

    `call` returns nothing where all is well, a Result where it knows better, and otherwise what is wrong.
    """
    try:
        with within(seconds):
            said = call()
    except EncoreError as error:
        return refused(what, str(error), world)
    except Exception as error:  # noqa: BLE001 - whatever else it is, it is what is looked for
        return Outcome(result=Result.WRONG, what=f"{what}: {last_of(error)}")
    if isinstance(said, Result):
        return Outcome(result=said, what=what)
    if said:
        return Outcome(result=Result.WRONG, what=f"{what}: {said}")
    return Outcome(result=Result.RECOVERED, what=what)


def refused(what: str, sentence: str, world: World) -> Outcome:
    """Whether a refusal is a clean one."""
    problem = ""
    if "\n" in sentence or len(sentence) > MAX_SENTENCE or not sentence.strip():
        problem = f"refused in no sentence: {sentence[:200]!r}"
    elif leak := leaked(sentence, world):
        problem = f"{leak} in {sentence[:300]!r}"
    return Outcome(result=Result.WRONG if problem else Result.REFUSED, what=f"{what}: {problem}" if problem else what)


def leaked(text: str, world: World) -> str:
    """What should not have come out, or nothing."""
    for secret, name in world.secrets.items():
        if secret in text:
            return f"{name}"
    return "a traceback" if re.search(r"Traceback \(most recent call last\)", text) else ""


def left_behind(what: str, left: Sequence[object]) -> Iterator[Outcome]:
    """An outcome if there is anything."""
    if left:
        shown = ", ".join(str(one) for one in left[:4])
        yield Outcome(result=Result.LEFT_BEHIND, what=f"{what}: {len(left)} left: {shown}")


def last_of(error: BaseException) -> str:
    """An error with the place it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error)[:300]}{place}"
