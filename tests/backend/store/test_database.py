"""The database: all or nothing, several writers, refusal of what it does not know."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from backend.store.database import Database
from backend.store.errors import StoreError, StoreTooNew


def _with_table(home: Path) -> Database:
    database = Database(home)
    with database.transaction() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS things (number INTEGER)")
    return database


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    database = _with_table(tmp_path)

    def fail_in_the_middle() -> None:
        with database.transaction() as connection:
            connection.execute("INSERT INTO things VALUES (1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle()
    with database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM things").fetchone()[0] == 0


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    database = _with_table(tmp_path)

    def add_one() -> None:
        for _ in range(20):
            with database.transaction() as connection:
                (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM things").fetchone()
                connection.execute("INSERT INTO things VALUES (?)", (number + 1,))

    threads = [threading.Thread(target=add_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.reading() as connection:
        numbers = [row["number"] for row in connection.execute("SELECT number FROM things ORDER BY number")]
    assert numbers == list(range(1, 81))


def test_opening_twice_migrates_once(tmp_path: Path) -> None:
    Database(tmp_path)
    with Database(tmp_path).reading() as connection:
        names = [row["name"] for row in connection.execute("SELECT name FROM migrations")]
    assert len(names) == len(set(names))


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    with Database(tmp_path).transaction() as connection:
        connection.execute("INSERT INTO migrations VALUES ('9999-from-the-future.sql', 'now')")
    with pytest.raises(StoreTooNew, match="9999-from-the-future"):
        Database(tmp_path)


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "encore.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match="is damaged"):
        Database(tmp_path)


def test_a_violated_constraint_is_not_turned_into_a_store_error(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.transaction() as connection:
        connection.execute("CREATE TABLE names (name TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO names VALUES ('a')")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("INSERT INTO names VALUES ('a')")
