"""Numbers for Prometheus, in a registry of their own: several applications may live in one process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from backend.serving.protocol import ServiceState
from backend.serving.requests import SpeechSummary

MEDIA_TYPE = CONTENT_TYPE_LATEST

_FIRST_AUDIO_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


class ApiMetrics:
    """Counts what the API does."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
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
        self._engine = Gauge("encore_engine", "Numbers of each engine.", ["engine", "number"], registry=registry)

        self._memory = Gauge(
            "encore_memory_bytes",
            "Memory of the process that speaks, by what holds it.",
            ["device", "owner"],
            registry=registry,
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

    def render(self, state: ServiceState) -> bytes:
        """All metrics in the Prometheus format."""
        self._engine.clear()
        for name, statistics in state.engines.items():
            for number, value in vars(statistics).items():
                self._engine.labels(name, number).set(value)
        self._memory.clear()
        for device, owners in state.memory.items():
            for owner, num_bytes in owners.items():
                self._memory.labels(device, owner).set(num_bytes)
        return generate_latest(self.registry)
