"""How often the watermark is found, after what may become of a recording, and what it costs in quality.

    python -m tests.benchmarks.watermark --folder /var/tmp/watermark --takes 2000 --output DATE-watermark.md
    python -m tests.benchmarks.watermark --folder /var/tmp/watermark --listen which-is-marked.html

Takes of the voices that come with the program, and with `--home` of the fine-tuned voices of a home, are spoken without
a mark, marked as the engine does it, changed, cut to clips that begin anywhere, and looked at. Sound without a mark
shows how often something is found where nothing is (`watermark_unmarked.py` says what to install). Everything is kept
in the folder: a run that was ended goes on where it was. `--steps` runs a part, so that two processes can share the
work.
"""

from __future__ import annotations

import argparse
import datetime
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from backend.watermark.detector import Detector
from backend.watermark.marker import STRENGTH_DB
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import line
from tests.benchmarks.watermark_calibration import calibrate, calibration_rows
from tests.benchmarks.watermark_found import CLIP_SECONDS, found_rows, look, read_findings, voice_rows
from tests.benchmarks.watermark_listening import NUM_PAIRS, listening_page
from tests.benchmarks.watermark_quality import judge, pesq_line, quality_rows, read_judged
from tests.benchmarks.watermark_takes import KEY, RATE, PlannedTake, Sound, made, make_takes, mark, plan_takes, speakers
from tests.benchmarks.watermark_unmarked import look_at_unmarked, make_unmarked, read_unmarked, unmarked_rows

_FIRST_SINGLE = 10_000
"""Number of the first take of one sentence: the judges hear these."""


class Bench:
    """What was asked for, and where it is kept."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.folder: Path = options.folder
        self.takes, self.unmarked = self.folder / "takes", self.folder / "unmarked"
        self.options = options
        self.known = speakers(options.home)
        names = list(self.known)
        self.planned = plan_takes(names, options.takes)
        # The first of each voice is what the next is compared with.
        self.singles = plan_takes(names, options.judged + len(names), is_single=True, first=_FIRST_SINGLE)

    def make(self) -> None:
        """Speak."""
        make_takes([*self.singles, *self.planned], self.takes, self.known)

    def find(self) -> None:
        """Look for the mark."""
        look(self.planned, self.options.changed, self.takes, self.folder / "found.jsonl")

    def null(self) -> None:
        """Look for it where it is not."""
        make_unmarked(self.unmarked, self.options.hours)
        # All sources in turn, so that a part of it has all of them.
        recordings = sorted(self.unmarked.glob("*.flac"), key=lambda path: (path.stem.rpartition("-")[2], path.name))
        look_at_unmarked(recordings, self.folder / "null.jsonl")

    def calibrate(self) -> None:
        """Try patterns that nobody has written."""
        calibrate(sorted(self.unmarked.glob("*.flac")), self.folder / "calibration.json")

    def judge(self) -> None:
        """Have the judges hear it."""
        judge(self.singles, self.options.recognised, self.takes, self.folder / "judged.jsonl")

    def singles_made(self, count: int) -> list[tuple[PlannedTake, Sound]]:
        """The first takes of one sentence that are there."""
        return [pair for pair, _ in zip(made(self.singles, self.takes), range(count), strict=False)]


STEPS: dict[str, Callable[[Bench], None]] = {
    "make": Bench.make,
    "find": Bench.find,
    "null": Bench.null,
    "calibrate": Bench.calibrate,
    "judge": Bench.judge,
}


def cost_lines(samples: Sound, unmarked: Sound) -> Iterator[str]:
    """Processor time of marking and of looking."""
    started = time.process_time()
    mark(samples, 1)
    taken = (time.process_time() - started) / (len(samples) / RATE)
    yield f"- marking takes {100 * taken:.2f} % of the sound's duration in processor time"
    for name, sound in (("with", mark(samples, 1)), ("without", unmarked)):
        hour = np.resize(sound, 3600 * RATE).reshape(-1, RATE)
        started, detector = time.process_time(), Detector(RATE, KEY)
        for block in hour:
            detector.add(block)
        detector.finish()
        yield f"- looking through an hour {name} a mark takes {time.process_time() - started:.0f} s of one core"


def report(bench: Bench) -> str:
    """What was found so far."""
    findings, heard = read_findings(bench.folder / "found.jsonl"), read_unmarked(bench.folder / "null.jsonl")
    judged = read_judged(bench.folder / "judged.jsonl")
    takes = list(made(bench.planned, bench.takes))
    minutes = sum(len(samples) for _, samples in takes) / RATE / 60
    spoken = np.concatenate([samples for _, samples in takes[:60]])
    lines = [
        "# The watermark",
        "",
        f"{datetime.datetime.now(tz=datetime.UTC).date()}, strength {STRENGTH_DB} dB, {len(takes)} takes of "
        f"{', '.join(bench.known)}, {minutes:.0f} minutes",
        "",
        *(f"- {fact}" for fact in describe_machine("cpu")),
        f"- Load average while this was written: {os.getloadavg()[0]:.1f}",
        *cost_lines(spoken, spoken),
        "",
        "One clip of each length from each take that is long enough, beginning anywhere: found (chance below one in a "
        "million), share with Wilson's interval of 95 %; payloads read without error, of those found.",
        "",
        line("", [f"{seconds} s" for seconds in CLIP_SECONDS]),
        line("---", ["---"] * len(CLIP_SECONDS)),
        *found_rows(findings),
        "",
        "Untouched, by voice:",
        "",
        line("", [f"{seconds} s" for seconds in CLIP_SECONDS]),
        line("---", ["---"] * len(CLIP_SECONDS)),
        *voice_rows(findings),
        "",
        "Without a mark: recordings whole, and clips of 5 s and 30 s of them.",
        "",
        line("", ["sound", "looked at", "called marked", "least log10 of the chance (marked: -6)"]),
        line("---", ["---"] * 4),
        *unmarked_rows(heard),
        "",
        "Whether the bound holds: patterns with signs drawn by lot, at one place each.",
        "",
        line("score", ["reached, share", "bound that the detector assumes", "trials"]),
        line("---", ["---"] * 3),
        *calibration_rows(bench.folder / "calibration.json"),
        "",
        "Quality, the same sentences with and without the mark, each alone:",
        "",
        line("", ["without", "marked", "difference (bootstrap interval of 95 %)", "sentences"]),
        line("---", ["---"] * 4),
        *quality_rows(judged),
        "",
        pesq_line(judged),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and print the report or write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where takes and results are kept")
    parser.add_argument("--home", type=Path, help="whose fine-tuned voices speak as well")
    parser.add_argument("--takes", type=int, default=100, help="by all voices together")
    parser.add_argument("--changed", type=int, default=100, help="takes that are also changed")
    parser.add_argument("--judged", type=int, default=50, help="sentences that are judged, one by one")
    parser.add_argument(
        "--recognised", type=int, default=50, help="of these, by the recogniser too, which takes longest"
    )
    parser.add_argument("--hours", type=float, default=0.5, help="of sound without a mark")
    parser.add_argument("--steps", nargs="*", choices=tuple(STEPS), default=list(STEPS), help="before the report")
    parser.add_argument("--listen", type=Path, metavar="FILE.html", help="only write a page of ten pairs to listen to")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    bench = Bench(options)
    if options.listen is not None:
        make_takes(bench.singles[:NUM_PAIRS], bench.takes, bench.known)
        options.listen.write_text(listening_page(bench.singles_made(NUM_PAIRS)), encoding="utf-8")
        return
    for step in options.steps:
        STEPS[step](bench)
    written = report(bench)
    print(written)
    if options.output is not None:
        options.output.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
