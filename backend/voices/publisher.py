"""Puts a home's voices into the object storage, where API servers with other homes find them within seconds."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from backend.store.keeping import keep_alike
from backend.voices.registry import Voices
from backend.voices.voice import PROMPTS_FOLDER, VoiceRecord
from backend.voices.voice_index import INDEX_NAME, STORED_VOICES_FOLDER, VoiceIndex, owner_of, stored_voice
from training.model.checkpoint.hashes import HASHES_FILE
from training.storage.folders import (
    Manifest,
    delete_folder,
    describe,
    describe_hashed,
    list_folders,
    put_folder,
    read_manifest,
)
from training.storage.objects import ObjectStore

_LOOK_SECONDS = 2.0
"""Other processes make voices in this home too; a look is one query."""

_AGAIN_SECONDS = 30.0
"""After the storage could not be used."""

_logger = logging.getLogger(__name__)


class VoicePublisher:
    """Keeps the storage as the registry is; the first home that publishes there is the only one that ever does."""

    def __init__(self, voices: Voices, store: ObjectStore, home: Path) -> None:
        """Publish the operator's voices; those of tenants stay in their home."""
        self._voices, self._store, self._home = voices, store, home
        self._published: tuple[VoiceRecord, ...] | None = None

    def publish(self) -> bool:
        """Store what is new and remove what is gone, if anything changed; whether this home is the one that may.

        The index is written after the files of new voices and before those of deleted ones are removed.

        Raises:
            EncoreError: the registry or the storage cannot be used, or a voice was deleted meanwhile; try again.
        """
        voices = self._voices.list()
        records = tuple(voice.record for voice in voices)
        if records == self._published:
            return True
        content, owner = self._store.read(INDEX_NAME), owner_of(self._home)
        if content is None and not records:
            return True
        if content is not None and VoiceIndex.parse(content).owner != owner:
            return False
        for voice in voices:
            if read_manifest(self._store, stored_voice(voice.id)) is None:
                put_folder(self._store, stored_voice(voice.id), voice.folder, _describe_voice(voice.folder))
        self._store.write(INDEX_NAME, VoiceIndex(owner=owner, voices=records).model_dump_json().encode())
        for voice_id in set(list_folders(self._store, STORED_VOICES_FOLDER)) - {record.id for record in records}:
            delete_folder(self._store, stored_voice(voice_id))
        self._published = records
        return True

    def keep_publishing(self) -> threading.Event:
        """Do it whenever something changes, in a thread of its own, until the event that is returned is set."""
        failure = "Voices could not be put into the storage; that is tried again"
        return keep_alike(
            "voice publisher", self._keep_publishing, failure, look_seconds=_LOOK_SECONDS, again_seconds=_AGAIN_SECONDS
        )

    def _keep_publishing(self) -> bool:
        is_ours = self.publish()
        if not is_ours:
            _logger.info("the voices at %s are those of another home, which are read", self._store.location)
        return is_ours


def _describe_voice(folder: Path) -> Manifest:
    """What a voice was stored with; prompts that were made of it since are made again elsewhere."""
    manifest = describe_hashed(folder)
    if HASHES_FILE in manifest.files:
        return manifest
    return describe(folder, [name for name in manifest.files if not name.startswith(f"{PROMPTS_FOLDER}/")])
