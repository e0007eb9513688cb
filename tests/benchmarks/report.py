"""Rounds of measurements to a table: medians with the smallest and largest round, and ratios within rounds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BEST = ", best round against best round"

Round = dict[str, Any]
"""What one party answered in one round: lists of milliseconds, and `peak_bytes`."""


@dataclass(frozen=True)
class Spread:
    """One number per round, summed up."""

    median: float
    smallest: float
    largest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Sum up at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def show(self, digits: int) -> str:
        """`median (smallest to largest)`, or the number alone when there is but one."""
        if self.smallest == self.largest:
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} ({self.smallest:.{digits}f} to {self.largest:.{digits}f})"


def footer(beside: str, facts: Sequence[str]) -> list[str]:
    """The last lines of a result: what ran beside it, and where it was measured."""
    return [f"Beside it ran: {beside}.", "", *(f"- {fact}" for fact in facts), ""]


@dataclass(frozen=True)
class Party:
    """One column of the table: a precision of ours, or the reference.

    Attributes:
        name: the column's head.
        rounds: its answers.
        frame_milliseconds: of audio per frame.
    """

    name: str
    rounds: list[Round]
    frame_milliseconds: float

    def per_round(self, measure: str) -> list[float] | None:
        """Median of a measure within each round; None when this party does not have it."""
        if measure not in self.rounds[0]:
            return None
        return [statistics.median(answer[measure]) for answer in self.rounds]

    @property
    def real_time_factors(self) -> list[float] | None:
        """Time per frame, with the codec at four frames per call, by the time it takes to hear it."""
        frames, codec = self.per_round("frame"), self.per_round("codec_4")
        if frames is None or codec is None:
            return None
        return [(frame + heard) / self.frame_milliseconds for frame, heard in zip(frames, codec, strict=True)]


def ratios(numerator: Sequence[float] | None, denominator: Sequence[float] | None) -> list[float] | None:
    """Quotients within each round, where both were slowed down by the same neighbours."""
    if numerator is None or denominator is None:
        return None
    return [above / below for above, below in zip(numerator, denominator, strict=True)]


def best_ratio(numerator: Sequence[float] | None, denominator: Sequence[float] | None) -> list[float] | None:
    """Quotient of the smallest rounds: the least disturbed of each, on a machine that is never quiet."""
    if numerator is None or denominator is None:
        return None
    return [min(numerator) / min(denominator)]


def table(parties: Sequence[Party], reference: Party | None, prompt_rows: int) -> str:
    """The results as a Markdown table, the reference in the first column."""
    columns = ([reference] if reference is not None else []) + list(parties)
    lines = [line("", [party.name for party in columns]), line("---", ["---"] * len(columns))]
    milliseconds = {
        "talker step": "talker",
        "code predictor, all its codebooks": "code_predictor",
        "whole frame, without codec": "frame",
        "codec, 1 frame per call": "codec_1",
        "codec, 4 frames per call": "codec_4",
        "codec, one shot": "codec_one_shot",
        f"prefill of {prompt_rows} rows": "prefill",
        "time to first audio": "first_audio",
    }
    for title, measure in milliseconds.items():
        lines.append(line(title, [_cell(party.per_round(measure), 1) for party in columns]))
    lines.append(line("**real-time factor**", [_cell(party.real_time_factors, 2) for party in columns]))
    for suffix, compare in {"": ratios, BEST: best_ratio}.items():
        costs = [compare(party.per_round("codec_4"), party.per_round("codec_one_shot")) for party in columns]
        lines.append(line(f"**codec, 4 frames per call : one shot**{suffix}", [_cell(values, 2) for values in costs]))
    if reference is not None:
        for suffix, compare in {"": ratios, BEST: best_ratio}.items():
            for title, measure in {"talker": "talker", "code predictor": "code_predictor", "frame": "frame"}.items():
                gains = [compare(reference.per_round(measure), party.per_round(measure)) for party in parties]
                cells = ["1", *(_cell(values, 2) for values in gains)]
                lines.append(line(f"**{title}: times as fast as the reference**{suffix}", cells))
    peaks = [max(answer["peak_bytes"] for answer in party.rounds) / 2**30 for party in columns]
    lines.append(line("peak memory of the process", [f"{peak:.2f} GiB" for peak in peaks]))
    return "\n".join(lines)


def line(title: str, cells: Sequence[str]) -> str:
    """One row of a Markdown table."""
    return f"| {title} | {' | '.join(cells)} |"


def _cell(values: list[float] | None, digits: int) -> str:
    return Spread.of(values).show(digits) if values else ""
