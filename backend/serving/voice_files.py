"""The files of voices on a machine that does not see the home: fetched from the object storage."""

from __future__ import annotations

import threading
from pathlib import Path

from backend.serving.requests import SynthesisRequest
from backend.voices.shared_voices import PublishedVoices
from backend.voices.voice import Voice
from training.storage.objects import ObjectStore


class VoiceFiles:
    """Finds them; may be asked from any thread."""

    def __init__(self, store: ObjectStore | None, folder: Path) -> None:
        """Keep copies in `folder`; without a storage nothing is fetched."""
        self._store, self._folder = store, folder
        self._opening = threading.Lock()
        self._published: PublishedVoices | None = None

    def here(self, request: SynthesisRequest) -> SynthesisRequest:
        """The request with a voice whose files are on this machine, if they can be had; waits for them.

        Raises:
            StorageError: they are in the storage, and cannot be fetched.
        """
        voice = request.voice
        if self._store is None or not isinstance(voice, Voice) or voice.folder.is_dir():
            return request
        published = self._open(self._store)
        record = next((one for one in published.records() if one.id == voice.id), None)
        found = published.fetch(record) if record is not None else None
        return request if found is None else request.model_copy(update={"voice": found})

    def _open(self, store: ObjectStore) -> PublishedVoices:
        with self._opening:
            if self._published is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._published = PublishedVoices(store, self._folder)
                self._published.keep_fresh()
            return self._published
