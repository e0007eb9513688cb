"""The takes that are kept: rows in the store, one file each, and the bounds beyond which the oldest go."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection, Row

from backend.audio.formats import FORMAT_TABLE
from backend.provenance.signing import FileSigner
from backend.provenance.verdict import Verdict
from backend.store.errors import StoreError
from backend.store.home import Home
from backend.store.rows import understanding, understood
from backend.store.trash import Deleted, Trash
from backend.takes.errors import TakeNotFound
from backend.takes.take import Take, TakeFacts
from training.model.owner import is_abandoned, working_name

TAKES_FOLDER = "takes"
_INCOMING = "incoming"
_DAY_SECONDS = 24 * 3600.0
_COLUMNS = "id, owner, number, made_at, num_bytes, record"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TakeBounds:
    """How much is kept of each tenant; whatever is reached first counts."""

    max_takes: int = 500
    max_bytes: int = 2 * 10**9
    max_days: float = 90.0


class Takes:
    """Keeps, lists and deletes the takes of the home's tenant; any number of threads and processes may hold one."""

    def __init__(self, home: Home, bounds: TakeBounds | None = None, signer: FileSigner | None = None) -> None:
        """Open the list; with a signer every take is signed that is not yet."""
        self._home, self._database, self.trash = home, home.database, Trash(home)
        self.folder = home.folder / TAKES_FOLDER
        self.bounds, self._signer = bounds or TakeBounds(), signer

    def of_tenant(self, tenant: str) -> Takes:
        """The same takes as another tenant sees them; costs nothing."""
        return Takes(self._home.of_tenant(tenant), self.bounds, self._signer)

    @contextmanager
    def incoming(self, suffix: str = ".wav") -> Iterator[Path]:
        """A name to write a take's file under until it is added; what is left there at the end is removed.

        Raises:
            StoreError: the folder cannot be made.
        """
        folder = self.folder / _INCOMING
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _not_kept(error) from error
        file = folder / working_name(suffix)
        try:
            yield file
        finally:
            # Where nothing can be written, not even what is missing can be removed; the next start sweeps it.
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def add(self, facts: TakeFacts, file: Path, owner: str = "") -> Take:
        """Keep a finished file, which is taken over, at the end of a list; what is beyond the bounds goes.

        Raises:
            StoreError: the disk is full or cannot be written.
        """
        if not facts.is_signed:
            facts = self._signed(facts, file)
        take_id = uuid.uuid4().hex
        path = self._path(take_id, facts)
        made_at = time.time()
        try:
            num_bytes = file.stat().st_size
            os.replace(file, path)
        except OSError as error:
            raise _not_kept(error) from error
        try:
            with self._database.transaction() as connection:
                number = _next_number(connection, self._home.tenant, owner)
                row = (take_id, owner, number, made_at, num_bytes, facts.model_dump_json(), self._home.tenant)
                connection.execute(f"INSERT INTO takes ({_COLUMNS}, tenant) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self._drop(self._beyond_bounds(but=take_id))
        return Take(
            **dict(facts),
            id=take_id,
            owner=owner,
            number=number,
            made_at=datetime.fromtimestamp(made_at, UTC),
            num_bytes=num_bytes,
            path=path,
        )

    def update(self, take: Take, **changes: object) -> Take:
        """Keep more, or something else, about a take. Raises TakeNotFound where it was deleted meanwhile."""
        facts = _facts_of(take).model_copy(update=changes)
        with self._database.transaction() as connection:
            self._write(connection, take, facts, take.num_bytes)
        return self.get(take.id)

    def replace(self, take: Take, file: Path, **changes: object) -> Take:
        """Keep another sound, whose file is taken over, in place of a take's; its number and its list stay.

        Raises:
            TakeNotFound: it was deleted meanwhile.
            StoreError: the disk is full or cannot be written.
        """
        facts = self._signed(_facts_of(take).model_copy(update=changes), file)
        try:
            with self._database.transaction() as connection:
                self._write(connection, take, facts, file.stat().st_size)
                os.replace(file, take.path)
        except OSError as error:
            raise _not_kept(error) from error
        return self.get(take.id)

    def _signed(self, facts: TakeFacts, file: Path) -> TakeFacts:
        is_signed = self._signer is not None and self._signer.sign_file(file, facts.audio_format, facts.statement)
        return facts.model_copy(update={"is_signed": is_signed})

    def _write(self, connection: Connection, take: Take, facts: TakeFacts, num_bytes: int) -> None:
        changed = connection.execute(
            "UPDATE takes SET record = ?, num_bytes = ? WHERE id = ?", (facts.model_dump_json(), num_bytes, take.id)
        )
        if not changed.rowcount:
            raise TakeNotFound(f"Take {take.number} was deleted meanwhile.")

    def list(self, owner: str | None = None, most: int | None = None) -> tuple[Take, ...]:
        """Takes whose sound is there, the newest first: those of one list, or all. Raises StoreError."""
        listed, values = ("tenant = ?", ()) if owner is None else ("tenant = ? AND owner = ?", (owner,))
        limit = "" if most is None else f"LIMIT {int(most)}"
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM takes WHERE {listed} ORDER BY made_at DESC, number DESC {limit}",
                (self._home.tenant, *values),
            ).fetchall()
        return tuple(take for take in understood(rows, self._take) if take.path.is_file())

    def files(self) -> dict[str, Path]:
        """Where the sound of each take of all tenants is, or was, by id. Raises StoreError."""
        wanted = "SELECT id, coalesce(json_extract(record, '$.audio_format'), 'wav') AS format FROM takes"
        with self._database.reading() as connection:
            rows = connection.execute(wanted).fetchall()
        known = (row for row in rows if row["format"] in FORMAT_TABLE)
        return {row["id"]: self.folder / f"{row['id']}{FORMAT_TABLE[row['format']].suffix}" for row in known}

    def with_mark(self, mark: int) -> tuple[Take, ...]:
        """Takes whose sound carries this number, the newest first; seldom more than one. Raises StoreError."""
        return tuple(take for take in self.list() if take.mark == mark)

    def get(self, take_id: str, owner: str | None = None) -> Take:
        """One take; with `owner` only from that list. Raises TakeNotFound."""
        with self._database.reading() as connection:
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM takes WHERE id = ? AND tenant = ?", (take_id, self._home.tenant)
            ).fetchone()
        take = self._take(row) if row is not None else None
        if take is None or not take.path.is_file():
            raise TakeNotFound(f"There is no take {take_id[:40]!r} any more. List those there are.")
        if owner is not None and take.owner != owner:
            raise TakeNotFound(f"There is no take {take_id[:40]!r} in this list. List those there are.")
        return take

    @contextmanager
    def sound_of(self, take: Take) -> Iterator[Path]:
        """The file of a take, for a block."""
        yield take.path

    def of(self, statement_ids: Sequence[str]) -> Take | None:
        """The take whose file makes one of these statements, if it is among those here. Raises StoreError."""
        query = f"SELECT {_COLUMNS} FROM takes WHERE tenant = ? AND json_extract(record, '$.statement.id') = ?"
        with self._database.reading() as connection:
            rows = (connection.execute(query, (self._home.tenant, one)).fetchone() for one in statement_ids)
            row = next((row for row in rows if row is not None), None)
        return None if row is None else self._take(row)

    def of_verdict(self, verdict: Verdict) -> Take | None:
        """The take that a checked file is, by its statement or else by its watermark. Raises StoreError."""
        take = self.of(verdict.statement_ids)
        if take is None and verdict.watermark is not None and verdict.watermark.payload is not None:
            take = next(iter(self.with_mark(verdict.watermark.payload)), None)
        return take

    def delete(self, take_id: str, owner: str | None = None) -> Deleted:
        """Put a take with its sound into the trash; with `owner` only from that list. Raises TakeNotFound."""
        take = self.get(take_id, owner)
        deleted = self.trash.put("take", take.id, f"Take {take.number}", files=[take.path], owner=take.owner)
        if deleted is None:
            raise TakeNotFound(f"There is no take {take_id[:40]!r} any more. List those there are.")
        return deleted

    def sweep(self) -> None:
        """Remove what is beyond the bounds or too old, and files that belong to no take. Raises StoreError."""
        self._drop(self._beyond_bounds())
        with self._database.reading() as connection:
            known = {row["id"] for row in connection.execute("SELECT id FROM takes")} | self.trash.item_ids("take")
        for file in (*self.folder.glob("*.*"), *(self.folder / _INCOMING).glob("*")):
            if is_abandoned(file) and file.is_file() and file.stem not in known:
                _logger.warning("removing %s, which belongs to no take", file)
                file.unlink(missing_ok=True)

    def _beyond_bounds(self, but: str = "") -> Sequence[str]:
        """Ids of takes that must go; never that of the one which has just been made."""
        oldest = time.time() - self.bounds.max_days * _DAY_SECONDS
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT id, tenant, made_at, num_bytes FROM takes ORDER BY made_at DESC"
            ).fetchall()
        # Each tenant's own: who speaks much must not push out what others have spoken.
        num_kept: Counter[str] = Counter()
        num_bytes: Counter[str] = Counter()
        gone = []
        for row in rows:
            tenant = row["tenant"]
            num_kept[tenant] += 1
            num_bytes[tenant] += row["num_bytes"]
            is_beyond = num_kept[tenant] > self.bounds.max_takes or num_bytes[tenant] > self.bounds.max_bytes
            if row["id"] != but and (is_beyond or row["made_at"] < oldest):
                gone.append(row["id"])
        return gone

    def _drop(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        with self._database.transaction() as connection:
            connection.executemany("DELETE FROM takes WHERE id = ?", [(each,) for each in ids])
        for each in ids:
            for file in self.folder.glob(f"{each}.*"):
                file.unlink(missing_ok=True)

    def _take(self, row: Row) -> Take:
        with understanding(f"take {row['id']}"):
            facts = TakeFacts.model_validate_json(row["record"])
        return Take(
            **dict(facts),
            id=row["id"],
            owner=row["owner"],
            number=row["number"],
            made_at=datetime.fromtimestamp(row["made_at"], UTC),
            num_bytes=row["num_bytes"],
            path=self._path(row["id"], facts),
        )

    def _path(self, take_id: str, facts: TakeFacts) -> Path:
        return self.folder / f"{take_id}{FORMAT_TABLE[facts.audio_format].suffix}"


def _facts_of(take: Take) -> TakeFacts:
    return TakeFacts(**{name: getattr(take, name) for name in TakeFacts.model_fields})


def _next_number(connection: Connection, tenant: str, owner: str) -> int:
    # Those in the trash count: one that comes back has the number it had.
    of = "owner = :owner AND tenant = :tenant"
    kept = f"SELECT number FROM takes WHERE {of}"
    deleted = f"SELECT json_extract(content, '$.takes[0].number') FROM trash WHERE kind = 'take' AND {of}"
    row = connection.execute(
        f"SELECT MAX(number) AS last FROM ({kept} UNION ALL {deleted})", {"owner": owner, "tenant": tenant}
    )
    return int(row.fetchone()["last"] or 0) + 1


def _not_kept(error: OSError) -> StoreError:
    return StoreError(
        f"The take cannot be kept: {error.strerror or error}. Free some space, or set ENCORE_HOME to another folder."
    )
