"""The speech service behind the API: engines of this process, or replicas behind the same interface."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

from backend.serving.engine.statistics import EngineStatistics
from backend.serving.memory import MemoryUse
from backend.serving.requests import SynthesisEvent, SynthesisRequest


@dataclass(frozen=True, kw_only=True)
class ServiceState:
    """The state of a speech service.

    Attributes:
        is_healthy: whether requests can be served now.
        num_replicas: processes that speak.
        engines: counts of each loaded checkpoint, by its name; of one replica if there are several.
        memory: of the same process, in bytes by device and owner.
    """

    is_healthy: bool
    num_replicas: int = 1
    engines: dict[str, EngineStatistics] = field(default_factory=dict)
    memory: MemoryUse = field(default_factory=dict)


class SpeechService(Protocol):
    """Speaks requests. Closing the iterator frees the slot before the next frame."""

    def speak(self, order: SynthesisRequest) -> AsyncGenerator[SynthesisEvent]:
        """Audio as it is made, then a summary; or a failure as the last event."""

    async def forget_deleted(self) -> None:
        """Drop what is held in memory of voices that have been deleted."""

    async def state(self, *, with_engines: bool = False) -> ServiceState:
        """Its state; the numbers of engines only if asked for, because a replica may have to be asked for them."""
