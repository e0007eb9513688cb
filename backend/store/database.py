"""One SQLite database for every process of the app: WAL, short transactions, migrations by numbered files.

WAL does not work on network file systems, so the database belongs on the disk of the machine the app runs
on; artefacts, which workers on other machines read, may lie elsewhere.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.store.copies import DATABASE_FILE, RESTORE_COMMAND, DatabaseCopies
from backend.store.errors import StoreBusy, StoreDamaged, StoreError, StoreTooNew

_MIGRATIONS = Path(__file__).parent / "migrations"
# How long a writer waits for another one; transactions are short, so longer means that something hangs.
_BUSY_SECONDS = 30.0
# The second one where SQLite's message quotes a damaged name.
_DATABASE_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)


class Database:
    """Opens a connection for each transaction: cheap with SQLite, and right in any thread and after a fork."""

    def __init__(self, home: Path) -> None:
        """Open or create the database in `home`, and bring its tables up to date.

        Raises:
            StoreError: the file cannot be created or is no database.
            StoreTooNew: it was written by a later version.
        """
        self.path = home / DATABASE_FILE
        self.before_writing: Callable[[], None] | None = None
        """Called before each transaction: a process that outlasts a full disk waits for room here."""
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{home} cannot be created: {error.strerror}. Set ENCORE_HOME to another folder."
            ) from error
        self._migrate()

    @contextmanager
    def transaction(self, *, checks_references: bool = True, is_durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Write: everything in the block happens, or nothing; no other writer comes between.

        Args:
            checks_references: off for migrations, which replace tables that other tables refer to.
            is_durable: off for counts, which do not wait for the disk: a power cut may take the last of them along.

        Raises:
            StoreError: the disk is full, or the file cannot be written.
        """
        if self.before_writing is not None:
            self.before_writing()
        with self._connection(self._open) as connection:
            connection.execute(f"PRAGMA foreign_keys = {int(checks_references)}")  # has no effect in a transaction
            if not is_durable:
                connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read one state of the database, whatever is written meanwhile. Also on a full disk."""
        with self._connection(self._open_for_reading) as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")

    def hold_open(self) -> Callable[[], None]:
        """Keep the files beside the database until what is returned is called, from any thread.

        Whoever closes the last connection writes everything to its place, and waits for the disk: many small counts
        would each do so. Raises StoreError.
        """
        try:
            return self._open(check_same_thread=False).close
        except _DATABASE_ERRORS as error:
            raise _explained(self.path, error) from error

    @contextmanager
    def _connection(self, open_it: Callable[[], sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
        try:
            connection = open_it()
        except _DATABASE_ERRORS as error:
            raise _explained(self.path, error) from error
        try:
            yield connection
        except _DATABASE_ERRORS as error:
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            raise _explained(self.path, error) from error
        finally:
            connection.close()

    def _open(self, *, check_same_thread: bool = True) -> sqlite3.Connection:
        connection = _connected(str(self.path), check_same_thread=check_same_thread)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # consent must survive a power loss
            # Makes the files beside the database, for which a full disk has no room: better now than later.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except _DATABASE_ERRORS:
            connection.close()
            raise
        return connection

    def _open_for_reading(self) -> sqlite3.Connection:
        try:
            return self._open()
        except sqlite3.OperationalError as error:
            wal = self.path.with_name(f"{self.path.name}-wal")
            is_whole = self.path.is_file() and not (wal.is_file() and wal.stat().st_size)
            if not _is_about_the_disk(error) or not is_whole:
                raise
            # Nobody has it open for writing, so that it is whole without them.
            return _connected(f"{self.path.absolute().as_uri()}?mode=ro&immutable=1")

    def _migrate(self) -> None:
        """Apply the migrations this file has not seen, in the order of their names."""
        known = {path.name: path for path in sorted(_MIGRATIONS.glob("*.sql"))}
        if self.path.is_file():
            applied = self._applied()
            if applied == known.keys():
                return
            # What an earlier version wrote stays to be had as it was; what a later one wrote is refused below.
            if applied and applied < known.keys():
                DatabaseCopies(self.path.parent).make()
        with self.transaction(checks_references=False) as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied_at TEXT NOT NULL)"
            )
            applied = {row["name"] for row in connection.execute("SELECT name FROM migrations")}
            if unknown := applied - known.keys():
                raise StoreTooNew(
                    f"{self.path} was written by a later version of Encore ({', '.join(sorted(unknown))}). "
                    "Update Encore, or set ENCORE_HOME to another folder."
                )
            for name, path in known.items():
                if name in applied:
                    continue
                for statement in _statements(path.read_text(encoding="utf-8")):
                    connection.execute(statement)
                connection.execute("INSERT INTO migrations VALUES (?, datetime('now'))", (name,))

    def _applied(self) -> set[str]:
        with self.reading() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone():
                return set()
            return {row["name"] for row in connection.execute("SELECT name FROM migrations")}


def _connected(place: str, *, check_same_thread: bool = True) -> sqlite3.Connection:
    """A connection without transactions of its own."""
    connection = sqlite3.connect(
        place,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        uri=place.startswith("file:"),
        check_same_thread=check_same_thread,
    )
    connection.row_factory = sqlite3.Row
    # A flipped bit in one text must not make all rows unreadable.
    connection.text_factory = lambda content: content.decode(errors="replace")
    return connection


def _is_about_the_disk(error: sqlite3.Error) -> bool:
    name = getattr(error, "sqlite_errorname", None) or ""
    return name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN"))


def _explained(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> StoreError:
    """What SQLite says, and what to do about it."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if isinstance(error, UnicodeDecodeError) or name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreDamaged(
            f"The database {path} is damaged: {error}. “{RESTORE_COMMAND}” puts its newest good copy in place."
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(
            f"{path} has been held by another process for {_BUSY_SECONDS:.0f} s. "
            "If nothing of Encore is at work, end the program that has it open, and try again."
        )
    if name.startswith("SQLITE_FULL"):
        return StoreError(f"{path} cannot be written: the disk is full. Make room and try again.")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return StoreError(f"{path} cannot be written: {error}. Make it writable, or set ENCORE_HOME to another folder.")
    return StoreError(f"{path} cannot be used: {error}. Check the disk, and its free space.")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script; `executescript` would commit after each."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    assert not pending.strip(), f"unfinished statement: {pending}"
