"""Copies of the database: one a day, one before each migration, and the way back to one of them."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from backend.store.errors import StoreDamaged, StoreError
from backend.store.lock import acquire

DATABASE_FILE = "encore.sqlite"
COPIES_FOLDER = "copies"
NUM_KEPT = 3
COPY_EVERY = timedelta(days=1)
RESTORE_COMMAND = "python app.py doctor --restore-database"

_LOOK_EVERY_SECONDS = 3600.0
_LOCK_SECONDS = 60.0
_PATTERN = "%Y-%m-%dT%H-%M-%S-%f"
# What SQLite keeps beside a database, and what belongs to that one alone.
_COMPANIONS = ("-wal", "-shm")

_logger = logging.getLogger(__name__)


class DatabaseCopies:
    """The copies of one home's database, and whether the database itself is sound."""

    def __init__(self, home: Path) -> None:
        self.path = home / DATABASE_FILE
        self.folder = home / COPIES_FOLDER

    def list(self) -> list[Path]:
        """Complete copies, the newest first."""
        return sorted((path for path in self.folder.glob("*.sqlite") if made_at(path)), reverse=True)

    def make(self) -> Path:
        """Copy the database as it is now, while others may use it; all but the last three copies are removed.

        Raises:
            StoreError: the disk is full, or the database cannot be read.
        """
        with self._alone():
            name = f"{datetime.now(UTC):{_PATTERN}}"
            part, copy = (self.folder / f"{name}{suffix}" for suffix in (".part", ".sqlite"))
            try:
                with closing(sqlite3.connect(self.path, timeout=_LOCK_SECONDS)) as connection:
                    connection.execute("VACUUM INTO ?", (str(part),))
                _write_through(part)
                part.rename(copy)
                _write_through(self.folder)
            except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
                part.unlink(missing_ok=True)
                raise StoreError(f"{self.path} could not be copied to {self.folder}: {error}.") from error
            for old in self.list()[NUM_KEPT:]:
                old.unlink(missing_ok=True)
        return copy

    def make_if_due(self) -> Path | None:
        """A copy, if the newest is older than a day and there is something to copy. Raises StoreError."""
        newest = next(iter(self.list()), None)
        age = datetime.now(UTC) - when if newest is not None and (when := made_at(newest)) else None
        if not self.path.is_file() or (age is not None and timedelta() <= age < COPY_EVERY):
            return None
        return self.make()

    def check(self) -> None:
        """Make sure that the database can be used, before anything relies on it.

        Raises:
            StoreDamaged: it is damaged, or gone while there are copies of it; says how to get the newest good one back.
        """
        if self.path.is_file() and self.path.stat().st_size:
            problem = damage_of(self.path)
        else:
            # Beginning anew would look as if all voices had been lost.
            problem = "it is gone or empty" if self.list() else ""
        if problem:
            raise StoreDamaged(f"The database {self.path} cannot be used: {problem}. {self._offer()}")

    def restore(self) -> tuple[Path, Path | None]:
        """Put the newest good copy in the place of the database, which is set aside.

        Returns:
            the copy, and where the database was put; None where it was gone.

        Raises:
            StoreError: no copy is good, or the disk is full; the database stays where it is.
        """
        with self._alone():
            copy = self._newest_good()
            if copy is None:
                raise StoreError(f"There is no good copy of the database in {self.folder}.")
            aside = None
            part = self.path.with_suffix(".part")
            try:
                part.write_bytes(copy.read_bytes())
                _write_through(part)
                if self.path.exists():
                    aside = self.path.with_name(f"{DATABASE_FILE}.damaged-{datetime.now(UTC):{_PATTERN}}")
                    # First: a restored database must not meet what belongs to the damaged one.
                    for companion in _COMPANIONS:
                        beside = self.path.with_name(DATABASE_FILE + companion)
                        if beside.exists():
                            beside.rename(aside.with_name(aside.name + companion))
                    self.path.rename(aside)
                part.rename(self.path)
                _write_through(self.path.parent)
            except OSError as error:
                raise StoreError(f"{copy} could not be put in place: {error.strerror}.") from error
        return copy, aside

    def keep_making(self) -> None:
        """Make a copy a day for as long as the program runs; a failure is logged, and tried again in an hour."""

        def work() -> None:
            while True:
                try:
                    self.make_if_due()
                except StoreError as error:
                    _logger.warning("%s", error)
                waiting.wait(_LOOK_EVERY_SECONDS)

        waiting = threading.Event()
        threading.Thread(target=work, daemon=True, name="database-copies").start()

    def _newest_good(self) -> Path | None:
        return next((copy for copy in self.list() if not damage_of(copy)), None)

    def _offer(self) -> str:
        copy = self._newest_good()
        when = None if copy is None else made_at(copy)
        if when is None:
            return f"There is no good copy in {self.folder}. Move the file away to begin anew, or bring a backup."
        return (
            f"There is a good copy of {when.astimezone():%Y-%m-%d %H:%M}: to go on with it, run “{RESTORE_COMMAND}”. "
            "The present file is then set aside, not deleted."
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time makes or removes copies. Raises StoreError."""
        try:
            descriptor = acquire(self.folder / "lock", _LOCK_SECONDS)
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be written: {error.strerror}.") from error
        if descriptor is None:
            raise StoreError(f"Another process has been copying {self.path} for a minute. Try again.")
        try:
            yield
        finally:
            os.close(descriptor)


def check_and_keep_copied(home: Path) -> None:
    """What a program does that serves, before it opens its home: see `DatabaseCopies`. Raises StoreDamaged."""
    copies = DatabaseCopies(home)
    copies.check()
    copies.keep_making()


def made_at(copy: Path) -> datetime | None:
    """When a copy was made, as its name says; None for another file."""
    try:
        return datetime.strptime(copy.stem, _PATTERN).replace(tzinfo=UTC)
    except ValueError:
        return None


def damage_of(path: Path) -> str:
    """What is wrong with a database file; empty where nothing is. It is only read."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_LOCK_SECONDS)) as file:
            found = [row[0] for row in file.execute("PRAGMA integrity_check(3)")]
    except sqlite3.OperationalError as error:
        # Held by another process, or not to be opened: not damage, and said where it is opened.
        _logger.info("%s could not be examined: %s", path, error)
        return ""
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        # Messages of SQLite quote what they stumble over.
        return str(error)
    # A finding may have several lines.
    return "" if found == ["ok"] else "; ".join(" ".join(str(finding).split()) for finding in found)


def _write_through(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
