"""A checkpoint ready to speak in this process, and a shelf for those of fine-tuned voices."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from backend.serving.engine.engine import Engine
from backend.voices.prompts import VoicePrompts
from training.model.voice_model import PrecisionChoice, VoiceModel

MAX_ON_SHELF = 2
"""Beside the base model: as many as a comparison of three can need."""

NUM_SLOTS = 1
"""A further slot would make every frame dearer for the one person who mostly listens, and the last bits of a take
depend on its company: with one slot a seed gives the same file each time. Several people take turns, sentence by
sentence."""

CACHE_LENGTH = 4096
"""Steps per slot: room for the longest reference and the longest sentence of the public checkpoints."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedModel:
    """A checkpoint ready to speak, under the name it was asked for by.

    Whoever speaks with it holds it meanwhile: its engine ends once nobody does any more.

    Attributes:
        name: mini, a folder or a hub id.
        folder: where it was read from.
        engine: what speaks.
        prompts: what the model made of the library's voices.
    """

    name: str
    folder: Path
    engine: Engine
    prompts: VoicePrompts

    @property
    def model(self) -> VoiceModel:
        """The checkpoint itself."""
        return self.engine.model

    @classmethod
    def load(cls, name: str, folder: Path, *, precision: PrecisionChoice = "auto", device: str = "auto") -> Self:
        """Read a checkpoint folder. Raises EncoreError."""
        engine = Engine.load(folder, precision=precision, device=device, num_slots=NUM_SLOTS, cache_length=CACHE_LENGTH)
        loaded = cls(name=name, folder=folder, engine=engine, prompts=VoicePrompts(engine.model))
        # An engine's thread keeps its engine, so it has to be told that nobody is left.
        weakref.finalize(loaded, engine.close)
        return loaded


class ModelShelf:
    """Keeps the checkpoints of the voices that spoke last; thread-safe."""

    def __init__(self, max_models: int = MAX_ON_SHELF) -> None:
        self._max_models = max_models
        self._models: OrderedDict[Path, LoadedModel] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str, folder: Path, *, precision: PrecisionChoice = "auto", device: str = "auto") -> LoadedModel:
        """Find or load a checkpoint. Raises EncoreError."""
        key = folder.resolve()
        with self._lock:
            loaded = self._models.pop(key, None)
            # Makes room before loading: two may fit into memory where three do not.
            while len(self._models) >= self._max_models:
                self._models.popitem(last=False)
            loaded = loaded or LoadedModel.load(name, folder, precision=precision, device=device)
            self._models[key] = loaded
        return loaded

    def forget(self, folder: Path) -> None:
        """Let go of what lies in a folder that is to be deleted."""
        with self._lock:
            for key in [key for key in self._models if key.is_relative_to(folder.resolve())]:
                del self._models[key]
