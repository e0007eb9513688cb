"""What listeners experienced, as a table: one line per load and party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.report import Spread, ratios


@dataclass(frozen=True, kw_only=True)
class Load:
    """One party under one load in one round.

    Attributes:
        wall_seconds: until the last listener had heard his last sentence.
        processor_seconds: of all threads of the process in that time.
        sound_seconds: made in that time.
        first_audio_seconds: of every take.
        num_underruns: of all takes together.
        max_pause_seconds: of any of them.
        num_takes: spoken.
        peak_bytes: of the process so far.
    """

    wall_seconds: float
    processor_seconds: float
    sound_seconds: float
    first_audio_seconds: list[float]
    num_underruns: int
    max_pause_seconds: float
    num_takes: int
    peak_bytes: int

    @property
    def throughput(self) -> float:
        """Seconds of sound per second."""
        return self.sound_seconds / self.wall_seconds

    @property
    def sound_per_processor_second(self) -> float:
        """Seconds of sound per second of processor time, which other programs change less."""
        return self.sound_seconds / self.processor_seconds


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
        "sound per processor second, s/s",
        f"times {parties[0]}",
        "first audio p50, ms",
        "first audio p95, ms",
        "underruns per take",
        "longest pause, s",
        "peak memory",
    ]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for number in streams:
        reference = loads[parties[0], number]
        for party in parties:
            rounds = loads[party, number]
            lines.append(
                _line(
                    [
                        str(number),
                        party,
                        *_gain([load.throughput for load in rounds], [load.throughput for load in reference]),
                        *_gain(
                            [load.sound_per_processor_second for load in rounds],
                            [load.sound_per_processor_second for load in reference],
                        ),
                        _first_audio(rounds, 0.5),
                        _first_audio(rounds, 0.95),
                        Spread.of([load.num_underruns / load.num_takes for load in rounds]).show(2),
                        f"{max(load.max_pause_seconds for load in rounds):.2f}",
                        f"{max(load.peak_bytes for load in rounds) / 2**30:.2f} GiB",
                    ]
                )
            )
    return "\n".join(lines)


def open_loop_table(loads: Mapping[int | str, tuple[float, Sequence[Mapping[str, Any]]]]) -> str:
    """One line per number of streams, from the seconds that the load lasted and what each listener heard."""
    heads = [
        "streams offered",
        "listeners",
        "turned away",
        "throughput, s/s",
        "first audio p50, ms",
        "first audio p95, ms",
        "underruns per take",
        "longest pause, s",
        "chunks late, %",
        "with the lead told: chunks late, %",
        "longest pause, s",
        "lead p50 and p95, s of sound",
        "waited for it p50 and p95, ms",
    ]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for streams, (wall_seconds, heard) in loads.items():
        served = [one for one in heard if one["sound_seconds"]]
        first = [1e3 * one["first_audio_seconds"] for one in served]
        lines.append(
            _line(
                [
                    str(streams),
                    str(len(heard)),
                    str(len(heard) - len(served)),
                    f"{sum(one['sound_seconds'] for one in served) / wall_seconds:.2f}",
                    f"{percentile(first, 0.5):.0f}",
                    f"{percentile(first, 0.95):.0f}",
                    f"{sum(one['num_underruns'] for one in served) / len(served):.2f}",
                    f"{max(one['max_pause_seconds'] for one in served):.2f}",
                    *_led(served),
                ]
            )
        )
    return "\n".join(lines)


def _led(served: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many chunks were late for who plays at once, and what changes for who begins with the lead told."""
    num_chunks = sum(one["num_chunks"] for one in served)
    led = [one["lead"] for one in served]
    leads, waits = [one["seconds"] for one in led], [1e3 * one["waited_seconds"] for one in led]
    return [
        f"{100 * sum(one['num_underruns'] for one in served) / num_chunks:.1f}",
        f"{100 * sum(one['num_underruns'] for one in led) / num_chunks:.1f}",
        f"{max(one['max_pause_seconds'] for one in led):.2f}",
        f"{percentile(leads, 0.5):.2f}, {percentile(leads, 0.95):.2f}",
        f"{percentile(waits, 0.5):.0f}, {percentile(waits, 0.95):.0f}",
    ]


def crowd_lines(
    crowd: Sequence[Mapping[str, Any]], wall_seconds: float, served: int, asked: int, memory: Sequence[int]
) -> list[str]:
    """Sentences about a crowd beyond the bounds, and about memory before it, after it and along many requests."""
    refused = [one for one in crowd if one["status"] == 429]
    heard = [one for one in crowd if one["sound_seconds"]]
    last_refused = max((one["ended_at"] for one in refused), default=0.0)
    grown = ", ".join(f"{size / 2**20:.0f}" for size in memory)
    return [
        f"{len(crowd)} requests at once: {len(heard)} heard their sentence within {wall_seconds:.1f} s, {len(refused)} "
        f"were answered with 429, the last of them after {last_refused:.1f} s, and "
        f"{len(crowd) - len(heard) - len(refused)} otherwise.",
        "",
        f"{served} of {asked} further requests were served. Memory of the server in MiB before the crowd, after it, "
        f"and after each quarter of the {asked}: {grown}.",
    ]


def _gain(values: Sequence[float], reference: Sequence[float]) -> tuple[str, str]:
    """A measure over the rounds, and how many times the first party's it is."""
    gains = ratios(values, reference)
    assert gains is not None
    return Spread.of(values).show(2), "1" if values == reference else f"**{Spread.of(gains).show(2)}**"


def _first_audio(rounds: Sequence[Load], share: float) -> str:
    return Spread.of([1e3 * percentile(load.first_audio_seconds, share) for load in rounds]).show(0)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
