"""A home's finished datasets in the object storage, from where what the home has lost of them comes back.

datasets/HOME/files/SHA256                each file once, whichever datasets have it, under whatever names
datasets/HOME/names/NAME/manifest.json    a dataset: its files by their places in the home, and its rows in the database

HOME tells homes apart that share a storage.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import PurePosixPath

from backend.dataset.content import DatasetContent, DatasetReader, is_audio, read_rows
from backend.dataset.storage.dataset_table import DatasetTable
from backend.dataset.storage.lock import dataset_lock
from backend.dataset.storage.lost_files import LostFiles, digest_of_file
from backend.dataset.storage.training_files import dataset_folder
from backend.errors import EncoreError
from backend.store.artifacts import ARTIFACTS_FOLDER, DIGITS
from backend.store.errors import ArtifactError
from backend.store.home import Home
from backend.store.keeping import keep_alike
from backend.store.lock import acquire
from backend.store.trash import Trash
from training.data.code_rows import CARD_FILE
from training.errors import StorageDamaged, StorageRefused, StorageUnreachable
from training.storage.folders import (
    Manifest,
    StoredFile,
    delete_folder,
    describe,
    in_parallel,
    list_folders,
    put_files,
    put_manifest,
    read_manifest,
)
from training.storage.objects import ObjectStore

STORED_DATASETS_FOLDER = "datasets"
_LOCK_FILE = ".stored_datasets.lock"
_LOOK_SECONDS = 30.0
"""A look reads all rows of all datasets."""

_AGAIN_SECONDS = 60.0
"""After the storage could not be used."""

_logger = logging.getLogger(__name__)


class StoredDatasets:
    """Keeps the storage as the home's datasets are; which there are is for the database to say."""

    def __init__(self, home: Home, store: ObjectStore, owner: str) -> None:
        """Of a home, which is called `owner` in the storage."""
        self._home, self._store = home, store
        self._table, self._trash, self._reader = DatasetTable(home), Trash(home), DatasetReader(home)
        self._files, self._names = stored_files(owner), stored_names(owner)
        self._manifests: dict[str, Manifest] | None = None
        self._incomplete: set[str] = set()
        self._has_leftovers = True

    def sync(self) -> int:
        """Send what is new, bring back what is lost here, remove what is gone; returns how many files came back.

        One process of a home does it at a time; another one leaves it at that.

        Raises:
            EncoreError: the database or the storage cannot be used, or a part of a dataset is lost; try again.
        """
        lock = acquire(self._home.folder / _LOCK_FILE)
        if lock is None:
            return 0
        try:
            if self._manifests is None:
                self._manifests = {name: self._read(name) for name in list_folders(self._store, self._names)}
            return self._sync(self._manifests)
        finally:
            os.close(lock)

    def keep_syncing(self) -> threading.Event:
        """Do it every half a minute in a thread of its own, until the event that is returned is set."""

        def sync() -> bool:
            self.sync()
            return True

        failure = "Datasets could not be put into the storage; that is tried again"
        return keep_alike("stored datasets", sync, failure, look_seconds=_LOOK_SECONDS, again_seconds=_AGAIN_SECONDS)

    def _sync(self, manifests: dict[str, Manifest]) -> int:
        num_back, problems = 0, list[EncoreError]()
        listed = self._table.names()
        gone = manifests.keys() - set(listed)
        for name in listed:
            try:
                here, stored = self._reader.read(name), manifests.get(name)
                if here is not None and stored is not None and here.has_taken_the_name_of(stored):
                    gone.add(name)
                if here is not None:
                    num_back += self._keep(here, stored)
            except (StorageRefused, StorageUnreachable):
                raise
            except EncoreError as error:
                # No reason to leave the others out.
                problems.append(error)
        for name in gone - self._trash.item_ids("dataset"):
            # Training files that are not listed are of a database that was lost.
            if not (dataset_folder(self._home.folder, name) / CARD_FILE).exists():
                delete_folder(self._store, f"{self._names}/{name}")
                del manifests[name]
                self._has_leftovers = True
        # What an unreadable list names is not known.
        if self._has_leftovers and all(manifest.files for manifest in manifests.values()):
            self._remove_leftovers(manifests)
            self._has_leftovers = False
        if problems:
            raise problems[0]
        return num_back

    def _keep(self, here: DatasetContent, stored: Manifest | None) -> int:
        """Bring back what is lost of a dataset and send what is new; returns how many files came back."""
        num_back, problem = 0, None
        try:
            num_back = 0 if stored is None else self._bring_back(here, stored)
        except (StorageRefused, StorageUnreachable):
            raise
        except EncoreError as error:
            # No reason not to send the rest.
            problem = error
        now = self._reader.read(here.name) if num_back or problem else here
        is_stored = now is not None and stored is not None and now.is_stored_as(stored)
        if now is not None and now.card is not None and not (is_stored and here.name not in self._incomplete):
            self._send(now, stored)
        if problem is not None:
            raise problem
        return num_back

    def _send(self, here: DatasetContent, stored: Manifest | None) -> None:
        """Store a dataset that is finished; what changes meanwhile is for the next look."""
        before = {} if stored is None else stored.files
        known = {path: before[path] for path in here.files & before.keys() if not here.may_change(path)}
        new = describe(self._home.folder, here.files - known.keys()).files
        for path, file in new.items():
            _check_artefact(path, file, here.name)
        sent = Manifest(files={**known, **new})
        put_files(self._store, self._files, self._home.folder, sent)
        self._store.write(f"{self._files}/{here.rows_file.sha256}", here.rows)
        if self._reader.read(here.name) != here:
            return
        # What is lost here stays there.
        lost = {} if stored is None else here.lost(stored)
        manifest = Manifest(files={**lost, **sent.files, here.rows_name: here.rows_file})
        put_manifest(self._store, f"{self._names}/{here.name}", manifest)
        self._has_leftovers |= manifest != stored
        self._incomplete.discard(here.name)
        assert self._manifests is not None, "they are read first"
        self._manifests[here.name] = manifest

    def _bring_back(self, here: DatasetContent, stored: Manifest) -> int:
        """Fetch what the home has lost of a dataset; returns how many files that were.

        Raises:
            StorageDamaged: a part is lost in the storage, too; the rest has come.
            StorageError: the storage cannot be read, or this machine has no room.
            ArtifactError: this machine's disk cannot be written.
        """
        lost = here.lost(stored)
        if not lost:
            return 0
        coming = LostFiles(self._home.folder, self._store, self._files, here.name)
        try:
            coming.fetch(lost, stored, here.files)
            num_back = coming.place(path for path in lost if not here.is_of_training(path))
            if training := [path for path in lost if here.is_of_training(path)]:
                num_back += self._place_training_files(here, training, stored, coming)
        finally:
            coming.close()
        if coming.problem is not None:
            raise coming.problem
        return num_back

    def _place_training_files(self, here: DatasetContent, lost: list[str], stored: Manifest, coming: LostFiles) -> int:
        # A build or an edit writes them as well, and it may have been deleted meanwhile.
        with dataset_lock(self._home.folder, here.name):
            is_same = digest_of_file(self._home.folder / here.card_name) == here.card
            if not is_same or read_rows(self._home, here.name) != here.rows:
                return 0
            num_back = coming.place(path for path in lost if path != here.card_name)
            needed = [path for path in stored.files if here.is_of_training(path) and path != here.card_name]
            if here.card_name not in lost or not all((self._home.folder / path).is_file() for path in needed):
                return num_back
            if stored.files.get(here.rows_name) != here.rows_file:
                # The user has edited since.
                self._table.mark_rows(here.name, are_current=False)
            return num_back + coming.place([here.card_name])

    def _read(self, name: str) -> Manifest:
        try:
            return read_manifest(self._store, f"{self._names}/{name}") or Manifest(files={})
        except StorageDamaged as error:
            # It is written again from what is here.
            _logger.warning("%s", error)
            return Manifest(files={})

    def _remove_leftovers(self, manifests: Mapping[str, Manifest]) -> None:
        """Remove files that no dataset has any more, and remember which datasets lack one."""
        there = self._store.sizes(self._files)
        needed = {file.sha256 for manifest in manifests.values() for file in manifest.files.values()}
        in_parallel(lambda sha256: self._store.delete(f"{self._files}/{sha256}"), there.keys() - needed)
        self._incomplete = {
            name
            for name, manifest in manifests.items()
            if any(there.get(file.sha256) != file.num_bytes for file in manifest.files.values())
        }


def stored_files(owner: str) -> str:
    """The folder of the storage in which a home has the files of its datasets, by their hashes."""
    return f"{STORED_DATASETS_FOLDER}/{owner}/files"


def stored_names(owner: str) -> str:
    """The folder in which a home has a folder for each dataset, with its manifest."""
    return f"{STORED_DATASETS_FOLDER}/{owner}/names"


def _check_artefact(path: str, file: StoredFile, name: str) -> None:
    """Make sure that nothing is sent that was damaged here. Raises ArtifactError."""
    place = PurePosixPath(path)
    is_named_by_content = place.parts[0] == ARTIFACTS_FOLDER or is_audio(path)
    if is_named_by_content and not file.sha256.startswith(place.stem[:DIGITS]):
        raise ArtifactError(
            f"{path} of the dataset {name} is not what it was when it was written. Check the disk of this machine, "
            "remove the file, and build the dataset again."
        )
