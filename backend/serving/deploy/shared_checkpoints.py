"""Checkpoints of this home that a cluster speaks with: stored where a machine does not see their folder."""

from __future__ import annotations

import threading
from pathlib import Path

from backend.cluster.sight import unseen_paths
from backend.serving.requests import SynthesisRequest
from backend.voices.voice import Voice
from training.storage.objects import ObjectStore
from training.stored_checkpoints import RUNS_FOLDER
from training.stored_inputs import put_checkpoint


class SharedCheckpoints:
    """Stores each once; may be used by several threads."""

    def __init__(self, store: ObjectStore | None, home: Path) -> None:
        """Without a storage nothing is stored, and machines have to see the folders."""
        # In a home the folder of runs is called as in the storage.
        self._store, self._runs = store, home / RUNS_FOLDER
        self._names: dict[tuple[Path, int, int], str | None] = {}
        self._lock = threading.Lock()

    def share(self, request: SynthesisRequest) -> SynthesisRequest:
        """The request with which all machines of the connected cluster find the checkpoint that it asks for, if any.

        Raises:
            StorageError: it cannot be stored.
        """
        voice = request.voice
        if self._store is None or isinstance(voice, Voice) or voice.checkpoint is None:
            return request
        if not voice.checkpoint.is_dir():
            # Whoever speaks says what is missing.
            return request
        # One at a time: whoever asks for the same one waits until it is stored.
        with self._lock:
            found = voice.checkpoint.stat()
            # An export that is written anew is another folder under the same name.
            key = (voice.checkpoint, found.st_ino, found.st_mtime_ns)
            if key not in self._names:
                self._names[key] = self._store_unseen(self._store, voice.checkpoint)
            name = self._names[key]
        return request.model_copy(update={"voice": voice.model_copy(update={"stored_checkpoint": name})})

    def _store_unseen(self, store: ObjectStore, folder: Path) -> str | None:
        answers = unseen_paths([folder])
        if answers and not any(answers):
            return None
        is_of_run = folder.is_relative_to(self._runs)
        return put_checkpoint(store, folder, folder.relative_to(self._runs).parts[0] if is_of_run else None)
