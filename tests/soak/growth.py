"""The memory of processes over time: what is sampled, how far it grew, and the table of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import psutil

MAX_GROWTH = 0.15
SETTLED_MINUTE = 10.0
"""By then everything has been loaded once; in a shorter soak, half of it."""
_AROUND = 1
"""Samples on each side that decide with the one in question: a single one may fall into a take."""
_OWNER = re.compile(r'^encore_memory_bytes\{device="cpu",owner="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One process at one moment, in bytes; `unique` is what would be free if it ended, `owners` what /metrics says."""

    minute: float
    resident: float
    unique: float
    owners: Mapping[str, float] = field(default_factory=dict)


def sample_of(pid: int, minute: float, metrics: str = "") -> Sample:
    """Look at a process now. Raises psutil.NoSuchProcess if it has ended."""
    memory = psutil.Process(pid).memory_full_info()
    owners = {owner: float(num_bytes) for owner, num_bytes in _OWNER.findall(metrics)}
    return Sample(minute=minute, resident=memory.rss, unique=memory.uss, owners=owners)


def growth(samples: Sequence[Sample]) -> float:
    """How far the resident size at the end is above that of the tenth minute, as a ratio; 0 with too few samples."""
    if len(samples) < 2:
        return 0.0
    settled_at = min(SETTLED_MINUTE, samples[-1].minute / 2)
    settled = min(range(len(samples)), key=lambda index: abs(samples[index].minute - settled_at))
    before = median(one.resident for one in samples[max(0, settled - _AROUND) : settled + _AROUND + 1])
    return median(one.resident for one in samples[-2 * _AROUND - 1 :]) / before - 1


def table(samples_of: Mapping[str, Sequence[Sample]]) -> str:
    """All samples as Markdown, in MB, with a line for each process that says how far it grew."""
    owners = sorted({owner for samples in samples_of.values() for one in samples for owner in one.owners})
    columns = ["process", "minute", "resident", "unique", *owners]
    lines = [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    for name, samples in samples_of.items():
        for one in samples:
            sizes = [f"{size / 1e6:,.0f}" for size in (one.resident, one.unique)]
            held = [f"{one.owners[owner] / 1e6:,.0f}" if owner in one.owners else "" for owner in owners]
            lines.append(f"| {' | '.join([name, f'{one.minute:.1f}', *sizes, *held])} |")
    verdicts = [f"{name}: {growth(samples):+.0%} since it had settled" for name, samples in samples_of.items()]
    return "\n".join([*lines, "", *verdicts])


def is_bounded(samples_of: Mapping[str, Sequence[Sample]]) -> bool:
    """Whether no process grew by more than it may."""
    return all(growth(samples) <= MAX_GROWTH for samples in samples_of.values())
