"""What listeners experienced, as a table: one line per load and party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.report import Spread, ratios


@dataclass(frozen=True, kw_only=True)
class Load:
    """One party under one load in one round.

    Attributes:
        wall_seconds: until the last listener had heard his last sentence.
        sound_seconds: made in that time.
        first_audio_seconds: of every take.
        num_underruns: of all takes together.
        longest_pause_seconds: of any of them.
        num_takes: spoken.
        peak_bytes: of the process so far.
    """

    wall_seconds: float
    sound_seconds: float
    first_audio_seconds: list[float]
    num_underruns: int
    longest_pause_seconds: float
    num_takes: int
    peak_bytes: int

    @property
    def throughput(self) -> float:
        """Seconds of sound per second."""
        return self.sound_seconds / self.wall_seconds


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-round(share * 1000) * len(ordered) // 1000) - 1)]


def serving_table(
    loads: Mapping[tuple[str, int], Sequence[Load]], parties: Sequence[str], streams: Sequence[int]
) -> str:
    """The results as Markdown; the first party is what the others are compared with."""
    heads = [
        "streams",
        "party",
        "throughput, s/s",
        f"times {parties[0]}",
        "first audio p50, ms",
        "first audio p95, ms",
        "underruns per take",
        "longest pause, s",
        "peak memory",
    ]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for number in streams:
        reference = [load.throughput for load in loads[parties[0], number]]
        for party in parties:
            rounds = loads[party, number]
            gains = ratios([load.throughput for load in rounds], reference)
            assert gains is not None
            lines.append(
                _line(
                    [
                        str(number),
                        party,
                        Spread.of([load.throughput for load in rounds]).show(2),
                        "1" if party == parties[0] else f"**{Spread.of(gains).show(2)}**",
                        _first_audio(rounds, 0.5),
                        _first_audio(rounds, 0.95),
                        Spread.of([load.num_underruns / load.num_takes for load in rounds]).show(2),
                        f"{max(load.longest_pause_seconds for load in rounds):.2f}",
                        f"{max(load.peak_bytes for load in rounds) / 2**30:.2f} GiB",
                    ]
                )
            )
    return "\n".join(lines)


def _first_audio(rounds: Sequence[Load], share: float) -> str:
    return Spread.of([1e3 * percentile(load.first_audio_seconds, share) for load in rounds]).show(0)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
