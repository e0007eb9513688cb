"""A model that is loaded and speaks, in this process or on a cluster: what the studio needs of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from backend.serving.engine.statistics import EngineStatistics
from backend.serving.memory import MemoryUse
from backend.serving.requests import SynthesisRequest
from backend.serving.speech.audio_stream import AudioStream
from backend.voices.voice_encoder import VoiceEncoder
from training.model.sampling_settings import Sampling


class ModelFacts(BaseModel):
    """What is to be known of a model to ask it for a take.

    Attributes:
        name: mini, a folder or a hub id.
        precision: of its weights.
        device: the kind of device that it runs on.
        languages: that it speaks.
        default_sampling: the checkpoint's own.
        is_small: whether a second thread would be of no use to it.
        cluster: address of the cluster that it speaks on; empty where it speaks in this process.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    precision: str
    device: str
    languages: tuple[str, ...]
    default_sampling: Sampling
    is_small: bool = False
    cluster: str = ""


class LoadedModel(Protocol):
    """Speaks requests, from any thread."""

    @property
    def name(self) -> str:
        """Of the model: mini, a folder or a hub id."""
        ...

    @property
    def facts(self) -> ModelFacts:
        """What is to be known to ask it for a take."""
        ...

    @property
    def encoder(self) -> VoiceEncoder | None:
        """Its own speaker encoder; None where it has none, or it is elsewhere."""
        ...

    def speak(self, request: SynthesisRequest, *, cancelled: Callable[[], bool] | None = None) -> AudioStream:
        """Begin to speak; may take seconds where a recording has to be analysed. Raises EncoreError."""
        ...

    def prepare(self, request: SynthesisRequest) -> None:
        """Load and analyse what a voice needs, so that its first take begins as soon as others. Raises EncoreError."""
        ...

    def forget_deleted(self) -> None:
        """Drop what is held of voices that have been deleted."""
        ...

    def statistics(self) -> dict[str, EngineStatistics]:
        """Numbers of each engine."""
        ...

    def memory(self) -> MemoryUse:
        """What it holds, in bytes by device and owner."""
        ...

    def retire(self) -> object:
        """End it as soon as it is not in use any more."""
        ...
