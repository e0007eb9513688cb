"""Numbers for Prometheus, in a registry of their own: several applications may live in one process."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric, Sample
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from backend.serving.protocol import ServiceState
from backend.serving.requests import SpeechSummary

MEDIA_TYPE = CONTENT_TYPE_LATEST

_FIRST_AUDIO_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


GONE_SECONDS = 30.0
"""A process that has told nothing for so long has ended: what it counted stays, and nothing is under way there."""

MAX_PROCESSES = 256
"""Whose counts are remembered; those of the process that told nothing for longest go first."""

_MADE = "_created"
"""Ends the names of samples that say since when something is counted."""


class MetricTotals(Protocol):
    """Adds up what several processes count."""

    def exchange(self, process: str, counts: tuple[Metric, ...]) -> tuple[Metric, ...]:
        """Take a process's counts in place of its last ones, and return those of all together."""


class ApiMetrics:
    """Counts what the API does."""

    def __init__(self) -> None:
        self._counted, self._measured = CollectorRegistry(), CollectorRegistry()
        registry = self._counted
        self._speeches = Counter(
            "encore_speeches", "Speech requests by outcome.", ["outcome"], registry=registry
        )  # fmt: skip
        self._refusals = Counter("encore_refusals", "Requests refused, by status.", ["status"], registry=registry)
        self._audio = Counter("encore_audio_seconds", "Seconds of sound spoken.", registry=registry)
        self._active = Gauge("encore_active_speeches", "Speeches being made.", registry=registry)
        self._first_audio = Histogram(
            "encore_seconds_to_first_audio",
            "Seconds from the request to the first audio.",
            buckets=_FIRST_AUDIO_BUCKETS,
            registry=registry,
        )
        self._engine = Gauge("encore_engine", "Numbers of each engine.", ["engine", "number"], registry=self._measured)
        self._memory = Gauge(
            "encore_memory_bytes",
            "Memory of the process that speaks, by what holds it.",
            ["device", "owner"],
            registry=self._measured,
        )

    def begin(self) -> None:
        """A speech is being made."""
        self._active.inc()

    def end(self, outcome: str, summary: SpeechSummary | None = None) -> None:
        """Count a request that has ended: `done`, `failed`, `refused` or `cancelled`."""
        self._active.dec()
        self._speeches.labels(outcome).inc()
        if summary is not None:
            self._audio.inc(summary.facts.seconds)
            self._first_audio.observe(summary.facts.seconds_to_first_audio)

    def refuse(self, status: int) -> None:
        """A request was answered with an error."""
        self._refusals.labels(str(status)).inc()

    def counts(self) -> tuple[Metric, ...]:
        """What this process has counted."""
        return tuple(self._counted.collect())

    def render(self, state: ServiceState, counts: Iterable[Metric] | None = None) -> bytes:
        """All metrics in the Prometheus format; with `counts` in place of what this process has counted."""
        self._engine.clear()
        for name, statistics in state.engines.items():
            for number, value in vars(statistics).items():
                self._engine.labels(name, number).set(value)
        self._memory.clear()
        for device, owners in state.memory.items():
            for owner, num_bytes in owners.items():
                self._memory.labels(device, owner).set(num_bytes)
        of_all = self._counted if counts is None else _Collected(counts)
        return generate_latest(of_all) + generate_latest(self._measured)


class TotalCounts:
    """The totals, in the process that others tell what they count; may be told from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._told: OrderedDict[str, _Told] = OrderedDict()

    def exchange(self, process: str, counts: tuple[Metric, ...]) -> tuple[Metric, ...]:
        """Take a process's counts in place of its last ones, and return those of all together."""
        with self._lock:
            now = self._clock()
            self._told[process] = _Told(counts, now)
            self._told.move_to_end(process)
            if len(self._told) > MAX_PROCESSES:
                self._told.popitem(last=False)
            return _sum((told.counts, now - told.at < GONE_SECONDS) for told in self._told.values())


@dataclass(frozen=True)
class _Told:
    counts: tuple[Metric, ...]
    at: float


class _Collected(CollectorRegistry):
    """What was collected elsewhere."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        super().__init__()
        self._metrics = tuple(metrics)

    def collect(self) -> Iterable[Metric]:
        """The same again."""
        return self._metrics


def _sum(told: Iterable[tuple[tuple[Metric, ...], bool]]) -> tuple[Metric, ...]:
    """Counts of several processes, each with whether it is still there."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for counts, is_there in told:
        for family in counts:
            families.setdefault(family.name, family)
            summed = values.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                value = sample.value if is_there or family.type != "gauge" else 0.0
                if sample.name.endswith(_MADE):
                    summed[key] = min(summed.get(key, value), value)
                else:
                    summed[key] = summed.get(key, 0.0) + value
    totals = []
    for name, family in families.items():
        total = Metric(name, family.documentation, family.type)
        total.samples = [Sample(sample, dict(labels), value) for (sample, labels), value in values[name].items()]
        totals.append(total)
    return tuple(totals)
