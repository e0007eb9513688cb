"""A stored dataset comes whole into a home that does not know it: on a new machine, or after its database was lost.

Nothing does so by itself: other homes share the storage, and what one has deleted must not come back in another.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from backend.dataset.clips.build_job import check_name
from backend.dataset.content import ROWS_FOLDER, files_named_by, is_among
from backend.dataset.errors import DatasetNameTaken, DatasetNotFound
from backend.dataset.storage.dataset_table import DatasetTable
from backend.dataset.storage.lock import DATASETS_FOLDER, dataset_lock
from backend.dataset.storage.lost_files import LostFiles
from backend.dataset.storage.training_files import dataset_folder
from backend.dataset.storage.workspace import UPLOADS_FOLDER
from backend.dataset.stored_datasets import STORED_DATASETS_FOLDER, stored_files, stored_names
from backend.store.errors import StoreTooNew
from backend.store.home import Home
from backend.store.tables import TABLES, insert_row
from backend.store.trash import Trash
from training.data.code_rows import CARD_FILE
from training.errors import StorageDamaged
from training.storage.folders import MANIFEST_FILE, Manifest, StoredFile, read_manifest
from training.storage.objects import ObjectStore

_PATHS = ("recordings", "transcripts")
"""Of a job."""


@dataclass(frozen=True, order=True, kw_only=True)
class StoredDataset:
    """A dataset of some home's; `owner` is what the home is called in the storage."""

    name: str
    owner: str


def list_stored(store: ObjectStore) -> list[StoredDataset]:
    """The datasets of all homes, in order. Raises StorageError."""
    found = (path.split("/") for path in store.sizes(STORED_DATASETS_FOLDER) if path.endswith(f"/{MANIFEST_FILE}"))
    return sorted(StoredDataset(name=parts[2], owner=parts[0]) for parts in found if parts[1:2] == ["names"])


def find_stored(store: ObjectStore, name: str, owner: str = "") -> StoredDataset:
    """The one dataset of a name; of homes that start with `owner`. Raises DatasetNotFound, and StorageError."""
    found = [one for one in list_stored(store) if one.name == name and one.owner.startswith(owner)]
    if not found:
        raise DatasetNotFound(
            f"There is no dataset {name!r} in the storage. `app.py dataset fetch` lists those there are."
        )
    if len(found) > 1:
        raise DatasetNotFound(
            f"{len(found)} homes have stored a dataset {name}. Say which with --from: "
            f"{', '.join(one.owner for one in found)}."
        )
    return found[0]


def fetch_stored(home: Home, store: ObjectStore, wanted: StoredDataset) -> int:
    """Bring a dataset into a home with all its files, rows, edits and consents; returns the number of files.

    Raises:
        DatasetNameTaken: the home has one of this name.
        DatasetNotFound: it is not stored any more.
        DatasetBusy: one of this name is being built here.
        StorageDamaged: a part of it is lost; nothing has come.
        StoreTooNew: it was stored by a later version.
        StorageError, ArtifactError: the storage cannot be read, or this machine has no room.
    """
    manifest = read_manifest(store, f"{stored_names(wanted.owner)}/{check_name(wanted.name)}")
    if manifest is None:
        raise DatasetNotFound(f"There is no dataset {wanted.name!r} in the storage any more.")
    rows = _with_paths_here(_read_rows(store, wanted, manifest), manifest, home.folder)
    with dataset_lock(home.folder, wanted.name):
        if wanted.name in DatasetTable(home).names():
            raise DatasetNameTaken(f"There is a dataset {wanted.name} here already. Delete it, and fetch again.")
        Trash(home).make_room(dataset_folder(home.folder, wanted.name))
        own = f"{DATASETS_FOLDER}/{wanted.name}"
        # Nothing else is written, whatever the manifest names.
        places = {own, f"{UPLOADS_FOLDER}/{wanted.name}", *files_named_by(rows, home.folder, wanted.name)}
        files = {path: file for path, file in manifest.files.items() if is_among(path, places)}
        there = frozenset(path for path in files if not path.startswith(own) and (home.folder / path).is_file())
        num_fetched = _bring(home, store, wanted, {path: files[path] for path in files.keys() - there}, manifest, there)
        with home.database.transaction() as connection:
            _insert_rows(connection, rows, wanted.name)
    return num_fetched


def _bring(
    home: Home,
    store: ObjectStore,
    wanted: StoredDataset,
    files: dict[str, StoredFile],
    manifest: Manifest,
    there: frozenset[str],
) -> int:
    coming = LostFiles(home.folder, store, stored_files(wanted.owner), wanted.name)
    try:
        coming.fetch(files, manifest, there)
        if coming.problem is not None:
            raise coming.problem
        # The card says that the others are there.
        return coming.place(sorted(files, key=lambda path: Path(path).name == CARD_FILE))
    finally:
        coming.close()


def _read_rows(store: ObjectStore, wanted: StoredDataset, manifest: Manifest) -> bytes:
    file = next((file for path, file in manifest.files.items() if path.startswith(f"{ROWS_FOLDER}/")), None)
    content = None if file is None else store.read(f"{stored_files(wanted.owner)}/{file.sha256}")
    if file is None or content is None or hashlib.sha256(content).hexdigest() != file.sha256:
        raise StorageDamaged(
            f"What is stored of the dataset {wanted.name} at {store.location} is damaged or not whole. Build the "
            "dataset again, or copy its home here."
        )
    return content


def _with_paths_here(rows: bytes, stored: Manifest, home: Path) -> bytes:
    """The rows with uploads where they are in this home; recordings elsewhere stay what they were called."""
    uploads = [name for name in stored.files if name.startswith(f"{UPLOADS_FOLDER}/")]

    def here(path: str) -> str:
        return next((str(home / name) for name in uploads if path.endswith(f"/{name}")), path)

    lines = []
    for line in rows.splitlines():
        table, row = json.loads(line)
        if table == "datasets":
            job = json.loads(row["job"])
            row["job"] = json.dumps(job | {key: [here(path) for path in job.get(key, ())] for key in _PATHS})
        lines.append(json.dumps([table, row]).encode() + b"\n")
    return b"".join(lines)


def _insert_rows(connection: sqlite3.Connection, rows: bytes, name: str) -> None:
    columns = {
        table: {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")}
        for table, _ in TABLES["dataset"]
    }
    for line in rows.splitlines():
        table, row = json.loads(line)
        if table not in columns or not row.keys() <= columns[table]:
            raise StoreTooNew(f"The dataset {name} was stored by a later version of Encore. Update Encore.")
        insert_row(connection, table, row)
