"""How often the mark is found in clips of takes, after what may have become of them."""

from __future__ import annotations

import json
import math
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from backend.watermark.detector import Detection, detect
from tests.benchmarks.report import line
from tests.benchmarks.watermark_changes import CHANGES
from tests.benchmarks.watermark_takes import KEY, RATE, PlannedTake, Sound, made, mark

CLIP_SECONDS = (3, 5, 10)
UNTOUCHED = "untouched"


class Finding(BaseModel):
    """What was found in one clip.

    Attributes:
        take: its number, which is also what its mark carries.
        seconds: of the clip.
        payload: what was read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    take: int
    voice: str
    change: str
    seconds: int
    is_marked: bool
    log10_p: float
    payload: int | None

    @classmethod
    def of(cls, take: PlannedTake, change: str, seconds: int, found: Detection) -> Finding:
        """As it is kept."""
        return cls(
            take=take.number,
            voice=take.voice,
            change=change,
            seconds=seconds,
            is_marked=found.is_marked,
            log10_p=found.log10_p,
            payload=found.payload,
        )


def look(planned: Sequence[PlannedTake], num_changed: int, takes: Path, results: Path) -> None:
    """Look at one clip of each length of each take as it is, and of the first ones after every change.

    One line a clip is added to `results`; takes that are there already are not looked at again.
    """
    known = {(one.take, one.change) for one in read_findings(results)}
    with results.open("a", encoding="utf-8") as file:
        for place, (take, samples) in enumerate(made(planned, takes)):
            changes = CHANGES if place < num_changed else {UNTOUCHED: CHANGES[UNTOUCHED]}
            missing = {name: change for name, change in changes.items() if (take.number, name) not in known}
            for found in _findings(take, samples, missing):
                file.write(found.model_dump_json() + "\n")
            file.flush()
            print(f"\rlooked at: {place + 1} of {len(planned)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _findings(take: PlannedTake, samples: Sound, changes: dict[str, Callable[[Sound], Sound]]) -> Iterator[Finding]:
    if not changes:
        return
    marked = mark(samples, take.number)
    for name, change in changes.items():
        changed = change(marked)
        for seconds in CLIP_SECONDS:
            room_left = len(changed) - seconds * RATE
            if room_left >= 0:
                start = random.Random(f"{take.number} {name} {seconds}").randint(0, room_left)
                found = detect(changed[start : start + seconds * RATE], RATE, KEY)
                yield Finding.of(take, name, seconds, found)


def read_findings(results: Path) -> list[Finding]:
    """What was found so far; a line that was not written to its end is not counted."""
    if not results.exists():
        return []
    lines = results.read_text(encoding="utf-8").splitlines()
    return [Finding.model_validate(json.loads(one)) for one in lines if one.endswith("}")]


def found_rows(findings: Sequence[Finding]) -> Iterator[str]:
    """One row per change: how many clips of each length were found, and how many payloads were read without error."""
    cells: dict[tuple[str, int], list[Finding]] = defaultdict(list)
    for one in findings:
        cells[one.change, one.seconds].append(one)
    for name in CHANGES:
        yield line(name, [_cell(cells[name, seconds]) for seconds in CLIP_SECONDS])


def voice_rows(findings: Sequence[Finding]) -> Iterator[str]:
    """One row per voice, of clips as they are."""
    for voice in sorted({one.voice for one in findings}):
        own = [one for one in findings if one.voice == voice and one.change == UNTOUCHED]
        yield line(voice, [_cell([one for one in own if one.seconds == seconds]) for seconds in CLIP_SECONDS])


def _cell(findings: Sequence[Finding]) -> str:
    found = [one for one in findings if one.is_marked]
    right = sum(one.payload == one.take for one in found)
    wrong = sum(one.payload not in (None, one.take) for one in found)
    return f"{share(len(found), len(findings))}; payload {share(right, len(found))}, {wrong} wrong"


def share(count: int, of: int) -> str:
    """`count of n, percent (Wilson's interval of 95 %)`."""
    if not of:
        return "none that long"
    z, p = 1.96, count / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    low, high = ((middle + sign * half) / (1 + z * z / of) * 100 for sign in (-1, 1))
    return f"{count} of {of}, {100 * p:.1f} % ({low:.1f} to {high:.1f})"
