"""One SQLite database for every process of the app: WAL, short transactions, migrations by numbered files.

WAL does not work on network file systems, so the database belongs on the disk of the machine the app runs
on; artefacts, which workers on other machines read, may lie elsewhere.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.store.copies import DATABASE_FILE, RESTORE_COMMAND, DatabaseCopies
from backend.store.errors import StoreBusy, StoreDamaged, StoreError, StoreTooNew

_MIGRATIONS = Path(__file__).parent / "migrations"
# How long a writer waits for another one; transactions are short, so longer means that something hangs.
_BUSY_SECONDS = 30.0


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
    def transaction(self, *, checks_references: bool = True) -> Iterator[sqlite3.Connection]:
        """Write: everything in the block happens, or nothing; no other writer comes between.

        Args:
            checks_references: off for migrations, which replace tables that other tables refer to.

        Raises:
            StoreError: the disk is full, or the file cannot be written.
        """
        if self.before_writing is not None:
            self.before_writing()
        with self._connection() as connection:
            connection.execute(f"PRAGMA foreign_keys = {int(checks_references)}")  # has no effect in a transaction
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read one state of the database, whatever is written meanwhile."""
        with self._connection() as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise _explained(self.path, error) from error
        try:
            connection.row_factory = sqlite3.Row
            # A flipped bit in one text must not make all rows unreadable.
            connection.text_factory = lambda content: content.decode(errors="replace")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # consent must survive a power loss
            yield connection
        except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            raise _explained(self.path, error) from error
        finally:
            connection.close()

    def _migrate(self) -> None:
        """Apply the migrations this file has not seen, in the order of their names."""
        known = {path.name: path for path in sorted(_MIGRATIONS.glob("*.sql"))}
        self._copy_before_migrating(known.keys())
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

    def _copy_before_migrating(self, known: Collection[str]) -> None:
        """What an earlier version wrote stays to be had as it was."""
        with self._connection() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone():
                return
            applied = {row["name"] for row in connection.execute("SELECT name FROM migrations")}
        # What a later version wrote is refused and stays as it is.
        if applied and applied < set(known):
            DatabaseCopies(self.path.parent).make()


def _explained(path: Path, error: sqlite3.Error) -> StoreError:
    """What SQLite says, and what to do about it."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
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
