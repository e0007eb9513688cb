"""The trash: what was deleted can be restored for a day, or until the trash is emptied.

A thing that is deleted leaves the tables it was in, all at once, so that nothing counts, lists, speaks or exports it;
its files stay. Restoring puts the rows back. Two kinds of folders have to make room: a dataset's, for another of the
same name, and a voice's, by whose absence servers notice that it is gone. Such a folder is moved after the rows, and
whoever finds that a process was killed between the two moves it then.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backend.errors import EncoreError
from backend.settings import Settings
from backend.store.errors import TrashBusy, TrashNameTaken, TrashNotFound
from backend.store.home import Home
from backend.store.lock import acquire
from backend.store.tables import TABLES, Kind, insert_row, rows_of
from training.errors import StorageError
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.stored_checkpoints import RUNS_FOLDER

KEPT_SECONDS = 24 * 3600.0
"""How long a deletion can be undone."""

TRASH_FOLDER = "trash"
_UPLOADS_FOLDER = "uploads"

_STORED: Mapping[Kind, str] = {"run": RUNS_FOLDER}
"""The folder of the object storage in which each thing of a kind has one of its own."""

_STORAGE_SECONDS = 5.0
"""How long a storage that does not answer is tried: the start of the app sweeps."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Deleted:
    """Something in the trash.

    Attributes:
        id: by which it is restored.
        item_id: what it had as its own id, or name.
        label: what people call it.
        num_bytes: what its files take; some may be shared with other things.
    """

    id: str
    kind: Kind
    item_id: str
    owner: str
    label: str
    deleted_at: datetime
    num_bytes: int

    @property
    def kept_until(self) -> datetime:
        """When it goes by itself."""
        return datetime.fromtimestamp(self.deleted_at.timestamp() + KEPT_SECONDS, UTC)


class Trash:
    """Takes things out of the tables and puts them back; any number of threads and processes may have one.

    It shows, restores and empties what the home's tenant has deleted, and sweeps what anybody has.
    """

    def __init__(self, home: Home) -> None:
        self._home, self._database, self._tenant = home.folder, home.database, home.tenant

    def put(
        self,
        kind: Kind,
        item_id: str,
        label: str,
        *,
        files: Sequence[Path] = (),
        owner: str = "",
        makes_room: Path | None = None,
    ) -> Deleted | None:
        """Delete something; None if it is not there any more.

        Args:
            kind: what it is.
            item_id: its id, or name.
            label: what people call it.
            files: its files and folders in the home, which are removed in the end.
            owner: of a take.
            makes_room: a folder that is moved away; of a dataset, the caller holds its lock.

        Raises:
            StoreError: the disk is full or cannot be written.
        """
        trash_id = uuid.uuid4().hex
        gone = [*files, *([makes_room] if makes_room is not None else [])]
        row = {
            "id": trash_id,
            "kind": kind,
            "item_id": item_id,
            "owner": owner,
            "tenant": self._tenant,
            "label": label,
            "deleted_at": time.time(),
            "num_bytes": sum(map(_num_bytes, gone)),
            "files": json.dumps([str(path.absolute().relative_to(self._home)) for path in files]),
            "moved_from": "" if makes_room is None else str(makes_room.absolute().relative_to(self._home)),
            "is_settled": int(makes_room is None),
        }
        with self._database.transaction() as connection:
            content: dict[str, list[dict[str, object]]] = {table: [] for table, _ in TABLES[kind]}
            for table, found in rows_of(connection, kind, item_id):
                content[table].append(found)
            main, column = TABLES[kind][0]
            if not content[main]:
                return None
            insert_row(connection, "trash", row | {"content": json.dumps(content)})
            # The other tables follow by themselves.
            connection.execute(f"DELETE FROM {main} WHERE {column} = ?", (item_id,))
        if kind == "dataset":
            self._settle(trash_id)
        self.sweep()
        # Not read again: another process may have emptied the trash by now.
        return _deleted(row)

    def get(self, trash_id: str) -> Deleted:
        """One thing. Raises TrashNotFound."""
        return _deleted(self._own_row(trash_id))

    def list(self, kind: Kind | None = None, owner: str | None = None) -> tuple[Deleted, ...]:
        """What can be restored, deleted last first: of one kind, and of one owner."""
        wanted = "SELECT * FROM trash WHERE NOT is_going AND deleted_at > ? AND tenant = ?"
        with self._database.reading() as connection:
            rows = connection.execute(
                f"{wanted} ORDER BY deleted_at DESC, rowid DESC", (time.time() - KEPT_SECONDS, self._tenant)
            ).fetchall()
        found = map(_deleted, rows)
        return tuple(one for one in found if kind in (None, one.kind) and owner in (None, one.owner))

    def find(self, kind: Kind, wanted: str, owner: str | None = None) -> Deleted:
        """What was deleted last of a kind under this id, or this name in whatever case. Raises TrashNotFound."""
        for one in self.list(kind, owner):
            if wanted == one.item_id or wanted.casefold() == one.label.casefold():
                return one
        raise _not_found()

    def item_ids(self, kind: Kind) -> set[str]:
        """Own ids of all things of a kind whose files are still there."""
        with self._database.reading() as connection:
            return {row["item_id"] for row in connection.execute("SELECT item_id FROM trash WHERE kind = ?", (kind,))}

    def restore(self, trash_id: str, check: Callable[[sqlite3.Connection], object] | None = None) -> Deleted:
        """Undo a deletion.

        Args:
            trash_id: of the deletion.
            check: called before the rows are put back, in the same transaction; may raise to leave it as it is.

        Raises:
            TrashNotFound: it is not in the trash, or not any more.
            TrashNameTaken: another thing has its name by now.
            TrashBusy: another process works on a thing of its name.
        """
        row = self._own_row(trash_id)
        restored = _deleted(row)
        with self._guard(row):
            if row["moved_from"]:
                self._move_back(row, restored)
            try:
                with self._database.transaction() as connection:
                    if not connection.execute("DELETE FROM trash WHERE id = ? AND NOT is_going", (trash_id,)).rowcount:
                        raise _not_found()
                    if check is not None:
                        check(connection)
                    for table, found in json.loads(row["content"]).items():
                        for one in found:
                            insert_row(connection, table, one)
            except sqlite3.IntegrityError as error:
                self._settle(trash_id)
                raise _name_taken(restored) from error
            except EncoreError:
                self._settle(trash_id)
                raise
        return restored

    def purge(self, trash_id: str, *, missing_ok: bool = False) -> None:
        """Remove something for good, with its files, here and in the object storage.

        Raises TrashNotFound and TrashBusy, and StorageError where the storage does not answer; it is gone for everybody
        then, and the next `sweep` removes the rest.

        Args:
            trash_id: of the deletion.
            missing_ok: whether another process may have emptied the trash just before; no error then.
        """
        with suppress(*((TrashNotFound,) if missing_ok else ())):
            self._own_row(trash_id)
            self._purge(trash_id)

    def _purge(self, trash_id: str) -> None:
        row = self._row(trash_id)
        with self._guard(row):
            self._settle(trash_id)
            with self._database.transaction() as connection:
                if not connection.execute("UPDATE trash SET is_going = 1 WHERE id = ?", (trash_id,)).rowcount:
                    raise _not_found()
            _remove_stored(row)
            self._remove_files(row)
            with self._database.transaction() as connection:
                connection.execute("DELETE FROM trash WHERE id = ?", (trash_id,))
            # A dataset's own lock is that of all datasets of its name.
            guard_of(self._place(trash_id)).unlink(missing_ok=True)

    def empty(self) -> int:
        """Remove everything for good; returns the number of things."""
        return self._purge_where("tenant = ?", (self._tenant,))

    def sweep(self) -> int:
        """Remove for good what was deleted long enough ago, and finish what a killed process left undone."""
        with self._database.reading() as connection:
            left = connection.execute("SELECT * FROM trash WHERE NOT is_settled").fetchall()
        for row in left:
            with suppress(TrashBusy, TrashNotFound), self._guard(row):
                self._settle(row["id"])
        return self._purge_where("is_going OR deleted_at <= ?", (time.time() - KEPT_SECONDS,))

    def make_room(self, folder: Path) -> None:
        """Finish the deletions that have still to free this folder; the caller holds its lock."""
        with self._database.reading() as connection:
            place = str(folder.absolute().relative_to(self._home))
            wanted = "SELECT id FROM trash WHERE NOT is_settled AND moved_from = ?"
            left = [row["id"] for row in connection.execute(wanted, (place,))]
        for trash_id in left:
            self._settle(trash_id)

    def _purge_where(self, condition: str, values: tuple[float | str, ...]) -> int:
        with self._database.reading() as connection:
            rows = connection.execute(f"SELECT id FROM trash WHERE {condition}", values).fetchall()
        num_gone = 0
        for row in rows:
            # Another process may be doing the same.
            try:
                self._purge(row["id"])
            except (TrashNotFound, TrashBusy):
                continue
            except StorageError as error:
                _logger.warning("%s", error)
                continue
            num_gone += 1
        return num_gone

    def _own_row(self, trash_id: str) -> sqlite3.Row:
        """A row of the tenant's; another's is not there."""
        row = self._row(trash_id)
        if row["tenant"] != self._tenant:
            raise _not_found()
        return row

    def _row(self, trash_id: str) -> sqlite3.Row:
        with self._database.reading() as connection:
            row: sqlite3.Row | None = connection.execute("SELECT * FROM trash WHERE id = ?", (trash_id,)).fetchone()
        if row is None:
            raise _not_found()
        return row

    def _place(self, trash_id: str) -> Path:
        return self._home / TRASH_FOLDER / trash_id

    def _settle(self, trash_id: str) -> None:
        """Move away what has to make room; nothing happens where that is done."""
        row = self._row(trash_id)
        if row["is_settled"]:
            return
        before, place = self._home / row["moved_from"], self._place(trash_id)
        if before.exists() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(before, place)
        self._mark(trash_id, is_settled=True)

    def _move_back(self, row: sqlite3.Row, restored: Deleted) -> None:
        """Move a folder to where it was. Until its rows are back, a killed process has only to settle it again."""
        main, column = TABLES[restored.kind][0]
        with self._database.reading() as connection:
            if connection.execute(f"SELECT 1 FROM {main} WHERE {column} = ?", (restored.item_id,)).fetchone():
                raise _name_taken(restored)
        before, place = self._home / row["moved_from"], self._place(row["id"])
        self._mark(row["id"], is_settled=False)
        if place.exists():
            # What lies there belongs to nothing: its rows would be there.
            shutil.rmtree(before, ignore_errors=True)
            before.parent.mkdir(parents=True, exist_ok=True)
            os.replace(place, before)

    def _mark(self, trash_id: str, *, is_settled: bool) -> None:
        with self._database.transaction() as connection:
            connection.execute("UPDATE trash SET is_settled = ? WHERE id = ?", (int(is_settled), trash_id))

    def _remove_files(self, row: sqlite3.Row) -> None:
        for path in (*(self._home / one for one in json.loads(row["files"])), self._place(row["id"])):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if row["kind"] == "dataset":
            self._remove_uploads(row)

    def _remove_uploads(self, row: sqlite3.Row) -> None:
        """Remove what was uploaded for a dataset, but for what another one is made of, be it in the trash."""
        with self._database.reading() as connection:
            jobs = [one["job"] for one in connection.execute("SELECT job FROM datasets")]
            wanted = "SELECT content FROM trash WHERE kind = 'dataset' AND id != ?"
            for other in connection.execute(wanted, (row["id"],)):
                jobs += [one["job"] for one in json.loads(other["content"])["datasets"]]
        needed = {path for job in jobs for path in _paths_of(job)}
        uploads = self._home / _UPLOADS_FOLDER
        own = {path for one in json.loads(row["content"])["datasets"] for path in _paths_of(one["job"])}
        files = {file for path in own if path.is_relative_to(uploads) for file in _files_of(path)}
        # Also what was uploaded and not used in the end, but nothing that another dataset of the name is to be made of.
        files |= {file for file in _files_of(uploads / row["item_id"]) if file.stat().st_ctime <= row["deleted_at"]}
        for file in files:
            if not any(file.is_relative_to(path) for path in needed):
                _remove_with_empty_folders(file, uploads)

    @contextmanager
    def _guard(self, row: sqlite3.Row) -> Iterator[None]:
        """Hold the lock of a folder that is moved. Raises TrashBusy while another process has it."""
        with nullcontext() if not row["moved_from"] else _locked(self._lock_of(row), row["label"]):
            yield

    def _lock_of(self, row: sqlite3.Row) -> Path:
        folder = self._home / row["moved_from"]
        return guard_of(folder if row["kind"] == "dataset" else self._place(row["id"]))


def _remove_stored(row: sqlite3.Row) -> None:
    """Remove what the object storage has of it. Raises StorageError."""
    folder = _STORED.get(row["kind"])
    location = Settings.from_environment().storage
    if folder is not None and location is not None:
        store = ObjectStore(StorageLocation.parse(location), patience_seconds=_STORAGE_SECONDS)
        store.delete_below(f"{folder}/{row['item_id']}")


def guard_of(folder: Path) -> Path:
    """The lock file of a folder that may have to make room."""
    return folder.with_name(f".{folder.name}.lock")


@contextmanager
def _locked(file: Path, label: str) -> Iterator[None]:
    descriptor = acquire(file)
    if descriptor is None:
        raise TrashBusy(f"Another process works on {label} just now. Wait until that is done, and try again.")
    try:
        yield
    finally:
        os.close(descriptor)


def _deleted(row: sqlite3.Row | Mapping[str, Any]) -> Deleted:
    return Deleted(
        id=row["id"],
        kind=row["kind"],
        item_id=row["item_id"],
        owner=row["owner"],
        label=row["label"],
        deleted_at=datetime.fromtimestamp(row["deleted_at"], UTC),
        num_bytes=row["num_bytes"],
    )


def _paths_of(job: str) -> list[Path]:
    read = json.loads(job)
    return [Path(path) for path in (*read.get("recordings", ()), *read.get("transcripts", ()))]


def _files_of(path: Path) -> list[Path]:
    return [one for one in (path.rglob("*") if path.is_dir() else [path]) if one.is_file()]


def _num_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in _files_of(path))


def _remove_with_empty_folders(file: Path, root: Path) -> None:
    if not file.is_dir():
        file.unlink(missing_ok=True)
    for folder in (file, *file.parents):
        if folder == root:
            return
        # One that holds something else stays.
        with suppress(OSError):
            folder.rmdir()


def _not_found() -> TrashNotFound:
    return TrashNotFound("This is not in the trash any more: it was restored, or removed for good.")


def _name_taken(item: Deleted) -> TrashNameTaken:
    return TrashNameTaken(
        f"There is another {item.kind} called {item.label!r} by now. Rename or delete that one first, then undo."
    )
