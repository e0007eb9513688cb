"""Turns of training steps to a table, and how many times as fast ours are as the reference's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.report import Spread, line

REFERENCE = "reference"


@dataclass(frozen=True)
class Party:
    """One row of the table.

    Attributes:
        name: who; those that begin with `reference` are what the others are compared with.
        rounds: one answer per round: clips, seconds, processor seconds, and peaks in bytes.
        losses: the talker's and the code predictor's, of the first micro-batch before any step.
    """

    name: str
    rounds: Sequence[dict[str, Any]]
    losses: Sequence[float]

    @property
    def is_reference(self) -> bool:
        """Whether others are compared with it."""
        return self.name.startswith(REFERENCE)

    @property
    def milliseconds(self) -> list[float]:
        """Processor time per sample, by round."""
        return [1000 * answer["processor_seconds"] / answer["clips"] for answer in self.rounds]

    @property
    def samples_per_second(self) -> list[float]:
        """By the clock, by round."""
        return [answer["clips"] / answer["seconds"] for answer in self.rounds]

    def gibibytes(self, measure: str) -> float:
        """The highest peak of all rounds."""
        return float(max(answer[measure] for answer in self.rounds)) / 2**30


def times_as_fast(party: Party, reference: Party) -> float:
    """By processor time per sample, best round against best round: the least disturbed of each."""
    return min(reference.milliseconds) / min(party.milliseconds)


def times_by_clock(party: Party, reference: Party) -> float:
    """By samples per second, best round against best round."""
    return max(party.samples_per_second) / max(reference.samples_per_second)


def table(parties: Sequence[Party]) -> str:
    """Measurements, then ratios to each reference, as Markdown."""
    heads = ["processor ms per sample", "samples per second", "peak while loading", "peak in steps", "losses at first"]
    lines = [line("", heads), line("---", ["---"] * len(heads))]
    for party in parties:
        cells = [
            Spread.of(party.milliseconds).show(1),
            Spread.of(party.samples_per_second).show(2),
            f"{party.gibibytes('loading_bytes'):.2f} GiB",
            f"{party.gibibytes('peak_bytes'):.2f} GiB",
            ", ".join(f"{loss:.4f}" for loss in party.losses),
        ]
        lines.append(line(party.name, cells))
    references = [party for party in parties if party.is_reference]
    if not references:
        return "\n".join(lines)
    measures: dict[str, Callable[[Party, Party], float]] = {"processor time": times_as_fast, "clock": times_by_clock}
    heads = [f"{name}, {whom.name.removeprefix('reference, ')}" for whom in references for name in measures]
    lines += ["", "Times as fast as the reference, best round against best round:", ""]
    lines += [line("", heads), line("---", ["---"] * len(heads))]
    for party in parties:
        if not party.is_reference:
            gains = [compare(party, whom) for whom in references for compare in measures.values()]
            lines.append(line(party.name, [f"{gain:.2f}" for gain in gains]))
    return "\n".join(lines)
