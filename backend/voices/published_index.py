"""The voices in the object storage, for a process that speaks in them without having their files."""

from __future__ import annotations

import threading
from pathlib import Path

from backend.voices.names import name_key
from backend.voices.voice import Voice
from backend.voices.voice_index import INDEX_NAME, VoiceIndex
from training.storage.objects import ObjectStore
from training.storage.watched import WatchedObject

_PATIENCE_SECONDS = 5.0
"""How long a storage that does not answer is asked; somebody waits."""


class PublishedIndex:
    """What is published, whoever publishes it; may be used from any thread."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        """Read the index; `folder` is where the home that publishes has its voices."""
        impatient = ObjectStore(store.location, patience_seconds=_PATIENCE_SECONDS)
        self._index, self._folder = WatchedObject(impatient, INDEX_NAME), folder
        self._lock = threading.Lock()
        self._content: bytes | None = None
        self._voices: tuple[Voice, ...] = ()

    def voices(self) -> tuple[Voice, ...]:
        """All of them, the oldest first; who speaks in one looks for its files where it runs. Raises StorageError."""
        content = self._index.read()
        with self._lock:
            if content != self._content:
                records = VoiceIndex.parse(content).voices if content is not None else ()
                self._voices = tuple(Voice(**dict(one), folder=self._folder / one.id) for one in records)
                self._content = content
            return self._voices

    def find(self, name: str) -> Voice | None:
        """One by its name, in any case, or its id. Raises StorageError."""
        key = name_key(name)
        return next((one for one in self.voices() if one.id == name or name_key(one.name) == key), None)
