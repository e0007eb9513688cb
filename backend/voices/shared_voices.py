"""The voices of this home, and beside them those that another home has put into the object storage."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path

from typing_extensions import override

from backend.store.home import Home
from backend.store.keeping import keep_alike
from backend.voices.errors import VoiceNotFound
from backend.voices.names import name_key
from backend.voices.registry import Voices
from backend.voices.voice import Voice, VoiceRecord
from backend.voices.voice_index import INDEX_NAME, VoiceIndex, owner_of, stored_voice
from training.errors import StorageError
from training.storage.folders import get_folder
from training.storage.objects import ObjectStore
from training.storage.watched import FRESH_SECONDS, WatchedObject

CACHE_FOLDER = "cache/stored-voices"
_LOOK_SECONDS = 30.0
_INDEX_SECONDS = 5.0
"""How long a storage that does not answer is asked for the index; somebody waits."""

_logger = logging.getLogger(__name__)


class PublishedVoices:
    """What another home has published, with copies of its files here; may be used by several threads."""

    def __init__(self, store: ObjectStore, home: Path, *, fresh_seconds: float = FRESH_SECONDS) -> None:
        """Keep copies in `home`, which itself publishes nothing there or is left alone."""
        self._store, self._folder, self._owner = store, home / CACHE_FOLDER, owner_of(home)
        impatient = ObjectStore(store.location, patience_seconds=_INDEX_SECONDS)
        self._index = WatchedObject(impatient, INDEX_NAME, fresh_seconds=fresh_seconds)
        self._lock = threading.Lock()
        self._content: bytes | None = None
        self._records: tuple[VoiceRecord, ...] = ()

    def records(self) -> tuple[VoiceRecord, ...]:
        """The voices that are there, seconds old at most; those that have gone are removed here.

        Raises:
            StorageError: the index cannot be read, and never was.
        """
        content = self._index.read()
        with self._lock:
            if content != self._content:
                index = VoiceIndex.parse(content) if content is not None else None
                self._records = index.voices if index is not None and index.owner != self._owner else ()
                self._content = content
                self._forget_others()
                threading.Thread(target=self._fetch_all, args=(self._records,), daemon=True).start()
            return self._records

    def keep_fresh(self) -> threading.Event:
        """Look now and then in a thread of its own, so that a voice which is gone goes here too, though nobody asks."""

        def look() -> bool:
            self.records()
            return True

        failure = "The published voices could not be read; that is tried again"
        return keep_alike("published voices", look, failure, look_seconds=_LOOK_SECONDS, again_seconds=_LOOK_SECONDS)

    def here(self, record: VoiceRecord) -> Voice | None:
        """A voice if its files have come, which they do by themselves."""
        folder = self._folder / record.id
        return Voice(**dict(record), folder=folder) if folder.is_dir() else None

    def fetch(self, record: VoiceRecord) -> Voice | None:
        """A voice with its files, waited for; None if it has just been deleted. Raises StorageError."""
        found = self.here(record)
        if found is None and get_folder(self._store, stored_voice(record.id), self._folder / record.id) is not None:
            found = self.here(record)
        return found

    def _fetch_all(self, records: tuple[VoiceRecord, ...]) -> None:
        try:
            for record in records:
                self.fetch(record)
        except StorageError as error:
            # Who asks for the voice is told.
            _logger.warning("%s", error)

    def _forget_others(self) -> None:
        """By the missing folder, servers notice that a voice is gone."""
        known = {record.id for record in self._records}
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.is_dir() and folder.name.lstrip(".").partition(".")[0] not in known:
                shutil.rmtree(folder, ignore_errors=True)


class SharedVoices(Voices):
    """As `Voices`; what is published can be found and spoken, and is changed where it comes from.

    A voice of this home goes before one of the same name that is published. Tenants have none of the published ones.
    """

    def __init__(self, home: Home, published: PublishedVoices, max_voices: int | None = None) -> None:
        """Open the registry of the operator."""
        super().__init__(home, max_voices)
        self._published = published

    @override
    def of_tenant(self, tenant: str, max_voices: int | None = None) -> Voices:
        home = self._home.of_tenant(tenant)
        return Voices(home, max_voices) if tenant else SharedVoices(home, self._published, max_voices)

    @override
    def get(self, name: str) -> Voice:
        try:
            return super().get(name)
        except VoiceNotFound:
            key = name_key(name)
            found = [one for one in self._published.records() if one.id == name or name_key(one.name) == key]
            voice = self._published.fetch(found[0]) if found else None
            if voice is None:
                raise
            return voice

    @override
    def list(self) -> tuple[Voice, ...]:
        own = super().list()
        names = {name_key(voice.name) for voice in own}
        others = [self._published.here(one) for one in self._published.records() if name_key(one.name) not in names]
        return tuple(sorted((*own, *filter(None, others)), key=lambda voice: voice.created_at))
