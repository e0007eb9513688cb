"""Takes are kept whole, in lists of their own, within bounds, and are gone when a person deletes them."""

from __future__ import annotations

import os
import time

import pytest

from backend.store.errors import StoreError
from backend.store.home import Home
from backend.store.trash import Trash
from backend.takes.errors import TakeNotFound
from backend.takes.takes import TakeBounds, Takes
from tests.backend.takes.facts import FACTS


def open_takes(home, **bounds):
    return Takes(Home(home), TakeBounds(**bounds))


def add(takes, owner="", content=b"sound", **facts):
    with takes.incoming() as file:
        file.write_bytes(content)
        return takes.add(FACTS.model_copy(update=facts), file, owner)


def test_a_take_is_the_same_after_a_restart(tmp_path):
    take = add(open_takes(tmp_path))
    again = open_takes(tmp_path).get(take.id)
    assert again == take
    assert again.path.read_bytes() == b"sound"
    assert again.num_bytes == 5


def test_each_list_counts_for_itself_and_shows_the_newest_first(tmp_path):
    takes = open_takes(tmp_path)
    for owner, text in (("one", "a"), ("two", "b"), ("one", "c")):
        add(takes, owner, text=text)
    assert [(take.number, take.text) for take in takes.list("one")] == [(2, "c"), (1, "a")]
    assert [take.number for take in takes.list("two")] == [1]
    assert [take.text for take in takes.list(most=2)] == ["c", "b"]


def test_only_the_owner_can_delete_a_take(tmp_path):
    takes = open_takes(tmp_path)
    take = add(takes, "one")
    with pytest.raises(TakeNotFound):
        takes.delete(take.id, "two")
    trash, deleted = Trash(Home(tmp_path)), takes.delete(take.id, "one")
    with pytest.raises(TakeNotFound):
        takes.get(take.id)
    trash.purge(deleted.id)
    assert not take.path.exists()
    trash.purge(takes.delete(add(takes, "two").id).id)
    assert list(takes.folder.glob("*.*")) == []


def test_a_deleted_take_comes_back_with_its_number(tmp_path):
    takes = open_takes(tmp_path)
    first, second = add(takes, "one"), add(takes, "one")
    deleted = takes.delete(second.id)
    assert (deleted.label, deleted.owner, deleted.num_bytes) == ("Take 2", "one", 5)
    os.utime(second.path, (0, 0))
    takes.sweep()
    third = add(takes, "one")
    assert third.number == 3, "the number of one that may come back is not given again"
    assert takes.list("one") == (third, first)
    Trash(Home(tmp_path)).restore(deleted.id)
    assert takes.list("one") == (third, second, first)
    assert second.path.read_bytes() == b"sound"


def test_what_is_in_the_trash_counts_for_no_bound(tmp_path):
    takes = open_takes(tmp_path, max_takes=2)
    for _ in range(3):
        takes.delete(add(takes).id)
    kept = [add(takes), add(takes)]
    assert takes.list() == tuple(reversed(kept))
    assert len(Trash(Home(tmp_path)).list("take")) == 3


def test_the_oldest_go_first_and_the_newest_stays_whatever_its_size(tmp_path):
    takes = open_takes(tmp_path, max_takes=2)
    for text in "abc":
        add(takes, text=text)
    assert [take.text for take in takes.list()] == ["c", "b"]
    assert len(list(takes.folder.glob("*.wav"))) == 2
    small = open_takes(tmp_path, max_bytes=10)
    add(small, content=bytes(100), text="large")
    assert [take.text for take in small.list()] == ["large"]
    small.sweep()
    assert small.list() == ()


def test_old_takes_and_unknown_files_are_removed(tmp_path):
    takes = open_takes(tmp_path)
    add(takes)
    stray, fresh = takes.folder / "stray.wav", takes.folder / "incoming" / "fresh.wav"
    for file in (stray, fresh):
        file.write_bytes(b"x")
    long_ago = time.time() - 100 * 24 * 3600
    os.utime(stray, (long_ago, long_ago))
    takes.sweep()
    assert len(takes.list()) == 1
    assert (stray.exists(), fresh.exists()) == (False, True)
    with takes._database.transaction() as connection:
        connection.execute("UPDATE takes SET made_at = ?", (long_ago,))
    takes.sweep()
    assert takes.list() == ()


def test_what_was_not_added_does_not_stay(tmp_path):
    takes = open_takes(tmp_path)
    with takes.incoming() as file:
        file.write_bytes(b"half")
    assert not file.exists()
    assert takes.list() == ()


def test_a_take_whose_file_is_gone_is_not_listed(tmp_path):
    takes = open_takes(tmp_path)
    add(takes).path.unlink()
    assert takes.list() == ()


def test_where_nothing_can_be_written_it_is_said(tmp_path):
    takes = open_takes(tmp_path)
    takes.folder.write_text("in the way")
    with pytest.raises(StoreError, match="ENCORE_HOME"), takes.incoming():
        pass


def test_a_take_is_found_by_the_number_in_its_sound(tmp_path):
    takes = open_takes(tmp_path / "home")
    kept = []
    for mark in (None, 7, 8, 7):
        with takes.incoming() as file:
            file.write_bytes(b"sound")
            kept.append(takes.add(FACTS.model_copy(update={"mark": mark}), file))
    assert [take.id for take in takes.with_mark(7)] == [kept[3].id, kept[1].id]
    assert takes.with_mark(9) == ()
