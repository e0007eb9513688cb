"""The files of voices on a machine that does not see the home: fetched from the object storage."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

from backend.serving.errors import ServingError, naming_machine
from backend.serving.requests import Reference, RunCheckpoint, SynthesisRequest
from backend.voices.shared_voices import PublishedVoices
from backend.voices.voice import Voice
from training.storage.objects import ObjectStore
from training.stored_inputs import fetch_folder

COMING_SECONDS = 15.0
"""How long the files of a voice are waited for that was made just now: its home looks every two seconds for what to put
into the storage, and whoever reads there every three."""

_PAUSE_SECONDS = 0.5


class VoiceFilesMissing(ServingError):
    """A voice is known, and its files are not on the machine that speaks."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The files of the voice {name} are not on the machine that speaks. If it was made just now, ask again in "
            "a moment; otherwise keep ENCORE_HOME where that machine sees it."
        )


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
        if self._store is None:
            return request
        if not isinstance(voice, Voice):
            return request.model_copy(update={"voice": _with_checkpoint_here(voice, self._store)})
        if voice.folder.is_dir():
            return request
        with naming_machine():
            published = self._open(self._store)
            record = next((one for one in published.records() if one.id == voice.id), None)
            found = published.fetch(record) if record is not None else None
        return request if found is None else request.model_copy(update={"voice": found})

    async def soon(self, request: SynthesisRequest, *, seconds: float = COMING_SECONDS) -> SynthesisRequest:
        """The same, where a voice that was made just now is on its way; waits without keeping a thread.

        Raises:
            StorageError: they are in the storage, and cannot be fetched.
        """
        give_up_at = time.monotonic() + (seconds if self._store is not None else 0.0)
        while True:
            request = await asyncio.to_thread(self.here, request)
            if _has_files(request) or time.monotonic() >= give_up_at:
                return request
            await asyncio.sleep(_PAUSE_SECONDS)

    def _open(self, store: ObjectStore) -> PublishedVoices:
        with self._opening:
            if self._published is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._published = PublishedVoices(store, self._folder)
                self._published.keep_fresh()
            return self._published


def _with_checkpoint_here(voice: Reference | RunCheckpoint, store: ObjectStore) -> Reference | RunCheckpoint:
    """With a checkpoint of this machine, where its own is not seen and was stored."""
    if voice.checkpoint is None or voice.stored_checkpoint is None or voice.checkpoint.is_dir():
        return voice
    with naming_machine():
        fetched = fetch_folder(store, voice.stored_checkpoint)
    return voice if fetched is None else voice.model_copy(update={"checkpoint": fetched})


def require_files(request: SynthesisRequest) -> None:
    """Refuse a voice whose files are elsewhere. Raises VoiceFilesMissing."""
    if not _has_files(request):
        raise VoiceFilesMissing(request.voice.name)


def _has_files(request: SynthesisRequest) -> bool:
    return not isinstance(request.voice, Voice) or request.voice.folder.is_dir()
