"""One row of the database that cannot be understood hides nothing else, and says so where it is asked for."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from backend.comparisons.vote_table import VoteTable
from backend.store.errors import RowDamaged
from tests.test_old_home import open_home, unpack

LISTS = {
    "takes": ("record", lambda studio: studio.takes.list(), lambda studio, one: studio.takes.get(one)),
    "voices": ("record", lambda studio: studio.voices.list(), lambda studio, one: studio.voices.get(one)),
    "runs": ("job", lambda studio: studio.runs.list(), lambda studio, one: studio.runs.get(one)),
    "comparisons": (
        "takes",
        lambda studio: VoteTable(studio.home.database).list_voted(),
        lambda studio, one: VoteTable(studio.home.database).get(one),
    ),
}


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"voice": 7}', "�" * 9])
@pytest.mark.parametrize("table", LISTS)
def test_a_damaged_row_hides_nothing_else(tmp_path, table, damage):
    column, list_all, get = LISTS[table]
    place = unpack(tmp_path / "old")
    studio = open_home(place)
    before = list_all(studio)
    assert before, "there is something to lose"
    damaged = before[0].id
    with closing(sqlite3.connect(place / "home" / "encore.sqlite")) as database, database:
        changed = database.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (damage, damaged))
        assert changed.rowcount == 1
    assert [one.id for one in list_all(studio)] == [one.id for one in before[1:]]
    with pytest.raises(RowDamaged, match=r"is damaged\. Delete it, or go back to a copy"):
        get(studio, damaged)


def test_bytes_that_are_no_text_hide_nothing_else(tmp_path):
    place = unpack(tmp_path / "old")
    studio = open_home(place)
    before = studio.takes.list()
    with closing(sqlite3.connect(place / "home" / "encore.sqlite")) as database, database:
        database.execute("UPDATE takes SET record = CAST(X'FF7BFE' AS TEXT) WHERE id = ?", (before[0].id,))
    assert [take.id for take in studio.takes.list()] == [take.id for take in before[1:]]
