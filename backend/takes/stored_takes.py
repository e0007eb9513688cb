"""The sound of a home's takes in the object storage, from where a file that the home has lost comes back.

takes/HOME/ID    a stored folder for each take, with its one file; HOME tells homes apart that share a storage
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from backend.store.home import Home
from backend.store.keeping import keep_alike
from backend.store.trash import Trash
from backend.takes.takes import Takes
from training.errors import StorageDamaged
from training.storage.folders import delete_folder, describe, get_folder, list_folders, put_folder, read_manifest
from training.storage.objects import ObjectStore

STORED_TAKES_FOLDER = "takes"
_LOOK_SECONDS = 5.0
_AGAIN_SECONDS = 60.0
"""After the storage could not be used."""


class StoredTakes:
    """Keeps the storage as the list of takes is; the list itself stays in the database."""

    def __init__(self, home: Home, store: ObjectStore, owner: str) -> None:
        """Of all tenants of a home; `owner` is what the home is called in the storage."""
        self._takes, self._trash, self._store = Takes(home), Trash(home), store
        self._place = f"{STORED_TAKES_FOLDER}/{owner}"
        self._stored: dict[str, tuple[str, int]] | None = None

    def sync(self) -> int:
        """Send what is new, bring back what is lost here, remove what is gone; returns how many came back.

        Raises:
            EncoreError: the database or the storage cannot be used; try again.
        """
        if self._stored is None:
            self._stored = dict.fromkeys(list_folders(self._store, self._place), ("", 0))
        wanted = self._takes.files()
        num_back, damage = 0, None
        for take_id, path in wanted.items():
            version = _version(path)
            if version is None:
                try:
                    num_back += self._bring_back(take_id, path)
                except StorageDamaged as error:
                    # No reason to leave the others out.
                    damage = error
            elif self._stored.get(take_id) != version:
                self._send(take_id, path)
                self._stored[take_id] = version
        for take_id in self._stored.keys() - wanted.keys() - self._trash.item_ids("take"):
            delete_folder(self._store, self._name(take_id))
            del self._stored[take_id]
        if damage is not None:
            raise damage
        return num_back

    def keep_syncing(self) -> threading.Event:
        """Do it every few seconds in a thread of its own, until the event that is returned is set."""

        def sync() -> bool:
            self.sync()
            return True

        failure = "Takes could not be put into the storage; that is tried again"
        return keep_alike("stored takes", sync, failure, look_seconds=_LOOK_SECONDS, again_seconds=_AGAIN_SECONDS)

    def _send(self, take_id: str, path: Path) -> None:
        manifest = describe(path.parent, [path.name])
        if read_manifest(self._store, self._name(take_id)) != manifest:
            put_folder(self._store, self._name(take_id), path.parent, manifest)

    def _bring_back(self, take_id: str, path: Path) -> bool:
        """Fetch a take's file; false where it is not stored."""
        assert self._stored is not None
        coming = path.parent / "incoming" / f"stored-{take_id}"
        if take_id not in self._stored or get_folder(self._store, self._name(take_id), coming) is None:
            return False
        os.replace(coming / path.name, path)
        coming.rmdir()
        coming.with_name(f".{coming.name}.lock").unlink(missing_ok=True)
        return True

    def _name(self, take_id: str) -> str:
        return f"{self._place}/{take_id}"


def _version(path: Path) -> tuple[str, int] | None:
    """What tells a file from another one of its name; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return path.name, found.st_mtime_ns
