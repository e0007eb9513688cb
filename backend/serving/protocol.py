"""Who speaks for the API: engines of this process, or replicas elsewhere behind the same interface."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

from backend.serving.engine.statistics import EngineStatistics
from backend.serving.requests import AudioChunk, SpeechFailure, SpeechItem, SpeechSummary, SynthesisRequest


@dataclass(frozen=True, kw_only=True)
class ServiceState:
    """What is known about whoever speaks.

    Attributes:
        is_healthy: whether requests can be served now.
        num_replicas: processes that speak.
        engines: numbers of each loaded checkpoint, by its name; of one replica where there are several.
    """

    is_healthy: bool
    num_replicas: int = 1
    engines: dict[str, EngineStatistics] = field(default_factory=dict)


class SpeechService(Protocol):
    """Speaks orders. Closing the iterator frees the slot before the next frame."""

    def speak(self, order: SynthesisRequest) -> AsyncGenerator[SpeechItem]:
        """Sound as it is made, then a summary, or a failure in the place of either."""

    async def forget_deleted(self) -> None:
        """A voice was deleted: whatever is held of it is not needed any more."""

    async def state(self, *, with_engines: bool = False) -> ServiceState:
        """Where it stands; the numbers of engines only if asked for, because somebody may have to be asked for them."""


@dataclass(frozen=True, kw_only=True)
class WholeSpeech:
    """A finished speech: one file and how it went."""

    content: bytes
    summary: SpeechSummary


async def collect(items: AsyncGenerator[SpeechItem]) -> WholeSpeech:
    """Wait for all of a speech. Raises EncoreError when it fails."""
    content = bytearray()
    try:
        async for item in items:
            match item:
                case AudioChunk():
                    content += item.content
                case SpeechSummary():
                    return WholeSpeech(content=bytes(content), summary=item)
                case SpeechFailure():
                    raise item.error
    finally:
        await items.aclose()
    raise AssertionError("a speech ends with a summary or a failure")
