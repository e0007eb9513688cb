"""Copies of the database: when they are made, and the way back to one where the database is damaged."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.store import copies as copies_module
from backend.store.copies import NUM_KEPT, DatabaseCopies, damage_of
from backend.store.database import _MIGRATIONS, Database
from backend.store.errors import StoreBusy, StoreDamaged, StoreError

SOME = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


def with_number(home: Path, number: int) -> Database:
    database = Database(home)
    with database.transaction() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS things (number INTEGER)")
        connection.execute("INSERT INTO things VALUES (?)", (number,))
    return database


def numbers_in(home: Path) -> list[int]:
    with Database(home).reading() as connection:
        return [row["number"] for row in connection.execute("SELECT number FROM things ORDER BY number")]


def test_the_last_three_are_kept_and_each_is_whole(tmp_path):
    copies = DatabaseCopies(tmp_path)
    for number in range(NUM_KEPT + 2):
        with_number(tmp_path, number)
        copies.make()
    assert len(copies.list()) == NUM_KEPT
    with closing(sqlite3.connect(copies.list()[0])) as newest:
        assert newest.execute("SELECT count(*) FROM things").fetchone() == (NUM_KEPT + 2,)
    assert {path.suffix for path in copies.folder.iterdir()} == {".sqlite", ""}, "only copies, and the lock"


def test_one_a_day_and_none_of_nothing(tmp_path, monkeypatch):
    copies = DatabaseCopies(tmp_path)
    assert copies.make_if_due() is None
    with_number(tmp_path, 1)
    assert copies.make_if_due() is not None
    assert copies.make_if_due() is None

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=1, seconds=1)

    monkeypatch.setattr(copies_module, "datetime", Tomorrow)
    assert copies.make_if_due() is not None


def test_a_copy_from_the_future_does_not_hinder_a_new_one(tmp_path):
    with_number(tmp_path, 1)
    copies = DatabaseCopies(tmp_path)
    copy = copies.make()
    copy.rename(copy.with_name(f"{datetime.now(UTC) + timedelta(days=400):%Y-%m-%dT%H-%M-%S-%f}.sqlite"))
    assert copies.make_if_due() is not None


def test_what_an_earlier_version_wrote_is_copied_before_it_is_changed(tmp_path, monkeypatch):
    *earlier, last = sorted(_MIGRATIONS.glob("*.sql"))
    (knows_less := tmp_path / "migrations").mkdir()
    for path in earlier:
        (knows_less / path.name).write_bytes(path.read_bytes())
    with monkeypatch.context() as before:
        before.setattr("backend.store.database._MIGRATIONS", knows_less)
        with_number(tmp_path, 7)
    copies = DatabaseCopies(tmp_path)
    assert copies.list() == []
    assert numbers_in(tmp_path) == [7]
    with closing(sqlite3.connect(copies.list()[0])) as copy:
        assert copy.execute("SELECT number FROM things").fetchall() == [(7,)]
        assert last.name not in {name for (name,) in copy.execute("SELECT name FROM migrations")}


def test_without_migrations_no_copy_is_made(tmp_path):
    Database(tmp_path)
    Database(tmp_path)
    assert DatabaseCopies(tmp_path).list() == []


@SOME
@given(where=st.floats(0, 1), flipped=st.binary(min_size=64, max_size=512))
def test_a_damaged_database_is_detected_or_still_readable(tmp_path_factory, where, flipped):
    home = tmp_path_factory.mktemp("home")
    for number in range(30):
        database = with_number(home, number)
    copies = DatabaseCopies(home)
    copies.make()
    with closing(sqlite3.connect(database.path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(database.path.read_bytes())
    start = int(where * (len(content) - len(flipped)))
    content[start : start + len(flipped)] = flipped
    database.path.write_bytes(content)
    try:
        copies.check()
    except StoreDamaged as error:
        assert "doctor --restore-database" in str(error)  # noqa: PT017 - it may as well be sound
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert not damage_of(database.path)
    _, aside = copies.restore()
    assert aside is not None
    assert aside.read_bytes() == bytes(content), "what was damaged is kept as it was"
    copies.check()
    assert numbers_in(home) == list(range(30))


@pytest.mark.parametrize("content", [None, b"", b"no database at all, but a text that somebody saved here" * 40])
def test_what_is_no_database_is_named_with_the_way_back(tmp_path, content):
    with_number(tmp_path, 3)
    copies = DatabaseCopies(tmp_path)
    copies.make()
    for path in tmp_path.glob("encore.sqlite*"):
        path.unlink()
    if content is not None:
        (tmp_path / "encore.sqlite").write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"good copy of 20.*--restore-database"):
        copies.check()
    copies.restore()
    assert numbers_in(tmp_path) == [3]


def test_a_damaged_copy_is_passed_over(tmp_path):
    with_number(tmp_path, 1)
    copies = DatabaseCopies(tmp_path)
    copies.make()
    with_number(tmp_path, 2)
    copies.make().write_bytes(b"SQLite format 3\0 and then rubbish" * 100)
    copies.restore()
    assert numbers_in(tmp_path) == [1]


def test_restoring_without_a_copy_changes_nothing(tmp_path):
    path = tmp_path / "encore.sqlite"
    path.write_bytes(b"rubbish" * 1000)
    with pytest.raises(StoreDamaged, match="no good copy"):
        DatabaseCopies(tmp_path).check()
    with pytest.raises(StoreError, match="no good copy"):
        DatabaseCopies(tmp_path).restore()
    assert path.read_bytes() == b"rubbish" * 1000


def test_an_open_database_says_that_it_is_damaged_and_not_that_the_disk_is_full(tmp_path):
    (tmp_path / "encore.sqlite").write_bytes(b"rubbish" * 1000)
    with pytest.raises(StoreDamaged, match="doctor --restore-database"):
        Database(tmp_path)


def test_a_message_that_quotes_damaged_letters_is_a_finding_too(tmp_path):
    """It was a UnicodeDecodeError: SQLite quotes the name of the table whose definition is damaged."""
    path = with_number(tmp_path, 1).path
    copies = DatabaseCopies(tmp_path)
    copies.make()
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    damaged = content.replace(b"tabletakestakes", b"tablet\xf9kest\xf9kes").replace(
        b"CREATE TABLE takes", b"CREATE TABLF takes"
    )
    assert damaged != content
    path.write_bytes(damaged)
    with pytest.raises(StoreDamaged, match="doctor --restore-database"):
        copies.check()
    with pytest.raises(StoreDamaged, match="doctor --restore-database"):
        Database(tmp_path)
    copies.restore()
    assert numbers_in(tmp_path) == [1]


def test_one_that_is_held_says_by_what(tmp_path, monkeypatch):
    database = with_number(tmp_path, 1)
    monkeypatch.setattr("backend.store.database._BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="held by another process"), database.transaction():
            pass
