"""What is deleted is in one place or in the other, whatever is done in whatever order and wherever a process dies."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.storage.dataset_table import DatasetTable
from backend.store import trash as trash_module
from backend.store.errors import TrashBusy, TrashNameTaken, TrashNotFound
from backend.store.home import Home
from backend.store.lock import acquire
from backend.store.tables import TABLES
from backend.store.trash import KEPT_SECONDS, Deleted, Trash, guard_of

NAMES = ("ann", "ben")


class Killed(BaseException):
    """The process was killed here."""


def make_dataset(home: Home, name: str) -> None:
    """A dataset of one upload, with training files."""
    upload = home.folder / "uploads" / name / "000" / "a.wav"
    upload.parent.mkdir(parents=True, exist_ok=True)
    upload.write_text(name)
    DatasetTable(home).save_job(BuildJob.parse(name, [upload]))
    folder = home.folder / "datasets" / name
    folder.mkdir(parents=True)
    (folder / "rows.parquet").write_text(f"rows of {name}")


def delete_dataset(home: Home, name: str) -> Deleted | None:
    return Trash(home).put("dataset", name, name, makes_room=home.folder / "datasets" / name)


def is_there(home: Home, name: str) -> bool:
    """Whether a dataset is listed; then its files must be in their place, and nowhere else."""
    listed = name in DatasetTable(home).names()
    rows = home.folder / "datasets" / name / "rows.parquet"
    assert rows.is_file() == listed
    if listed:
        assert rows.read_text() == f"rows of {name}"
        assert (home.folder / "uploads" / name / "000" / "a.wav").read_text() == name
    return listed


def test_what_is_deleted_comes_back_as_it_was(tmp_path):
    home = Home(tmp_path)
    make_dataset(home, "ann")
    before = DatasetTable(home).job("ann")
    deleted = delete_dataset(home, "ann")
    assert not is_there(home, "ann")
    assert Trash(home).list() == (deleted,)
    assert (deleted.label, deleted.num_bytes) == ("ann", len("rows of ann"))
    assert Trash(home).restore(deleted.id) == deleted
    assert is_there(home, "ann")
    assert DatasetTable(home).job("ann") == before
    assert Trash(home).list() == ()
    with pytest.raises(TrashNotFound):
        Trash(home).restore(deleted.id)


def test_nothing_takes_the_place_of_what_has_the_name_by_now(tmp_path):
    home = Home(tmp_path)
    make_dataset(home, "ann")
    deleted = delete_dataset(home, "ann")
    make_dataset(home, "ann")
    with pytest.raises(TrashNameTaken, match="another dataset called 'ann'"):
        Trash(home).restore(deleted.id)
    assert is_there(home, "ann")
    assert Trash(home).list() == (deleted,)
    newer = delete_dataset(home, "ann")
    assert Trash(home).list() == (newer, deleted)
    Trash(home).restore(deleted.id)
    assert is_there(home, "ann")


def test_it_goes_after_a_day(tmp_path, monkeypatch):
    home = Home(tmp_path)
    make_dataset(home, "ann")
    deleted = delete_dataset(home, "ann")
    now = time.time()
    monkeypatch.setattr(trash_module.time, "time", lambda: now + KEPT_SECONDS - 60)
    assert Trash(home).sweep() == 0
    monkeypatch.setattr(trash_module.time, "time", lambda: now + KEPT_SECONDS + 60)
    assert Trash(home).list() == ()
    assert Trash(home).sweep() == 1
    assert list((tmp_path / "uploads").rglob("*")) == list((tmp_path / "trash").rglob("*")) == []
    with pytest.raises(TrashNotFound):
        Trash(home).restore(deleted.id)


def test_uploads_stay_while_another_dataset_is_made_of_them(tmp_path):
    home = Home(tmp_path)
    make_dataset(home, "ann")
    table = DatasetTable(home)
    table.save_job(table.job("ann").model_copy(update={"name": "copy"}))
    upload = home.folder / "uploads" / "ann" / "000" / "a.wav"
    Trash(home).purge(delete_dataset(home, "ann").id)
    assert upload.is_file()
    copy = delete_dataset(home, "copy")
    assert upload.is_file(), "it can still be restored"
    Trash(home).purge(copy.id)
    assert not upload.exists()


def test_uploads_that_were_not_used_go_too_but_not_those_of_the_next_dataset(tmp_path):
    home = Home(tmp_path)
    make_dataset(home, "ann")
    unused, text, newer = (tmp_path / "uploads" / "ann" / name for name in ("b.wav", "b.txt", "c.wav"))
    unused.write_text("sound")
    text.write_text("words")
    DatasetTable(home).save_job(BuildJob(name="ben", recordings=(), transcripts=(str(text),)))
    deleted = delete_dataset(home, "ann")
    time.sleep(0.05)
    newer.write_text("sound")
    Trash(home).purge(deleted.id)
    assert (unused.exists(), text.exists(), newer.exists()) == (False, True, True)
    DatasetTable(home).save_job(BuildJob(name="cleo", recordings=(str(tmp_path / "uploads"),)))
    make_dataset(home, "dora")
    Trash(home).purge(delete_dataset(home, "dora").id)
    assert (tmp_path / "uploads" / "dora" / "000" / "a.wav").is_file(), "cleo is made of all of them"


def test_what_is_being_worked_on_is_left_alone(tmp_path):
    home = Home(tmp_path)
    make_dataset(home, "ann")
    deleted = delete_dataset(home, "ann")
    lock = acquire(guard_of(tmp_path / "datasets" / "ann"))
    for verb in (Trash(home).restore, Trash(home).purge):
        with pytest.raises(TrashBusy, match="Another process works on ann"):
            verb(deleted.id)
    os.close(lock)
    Trash(home).restore(deleted.id)


def test_every_table_of_a_thing_goes_with_it(tmp_path):
    """A table that is added later and refers to one of these must be known to the trash as well."""
    with Home(tmp_path).database.reading() as connection:
        tables = [row["name"] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        refers = {
            name: {row["table"] for row in connection.execute(f"PRAGMA foreign_key_list({name})")} for name in tables
        }
    for (main, _), *others in TABLES.values():
        known = {name for name, _ in others}
        assert {name for name, to in refers.items() if to & {main, *known}} == known


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_deleting_and_restoring_in_any_order_keeps_one_copy(tmp_path_factory, data):
    home = Home(tmp_path_factory.mktemp("home"))
    trash, deleted = Trash(home), dict[str, list[Deleted]]()
    for name in NAMES:
        make_dataset(home, name)
    for _ in range(data.draw(st.integers(1, 8))):
        name = data.draw(st.sampled_from(NAMES))
        verb = data.draw(st.sampled_from(["make", "delete", "restore", "purge", "sweep"]))
        listed, gone = name in DatasetTable(home).names(), deleted.setdefault(name, [])
        if verb == "make" and not listed:
            make_dataset(home, name)
        elif verb == "delete":
            if (one := delete_dataset(home, name)) is not None:
                gone.append(one)
        elif verb == "restore" and gone:
            if listed:
                with pytest.raises(TrashNameTaken):
                    trash.restore(gone[-1].id)
            else:
                trash.restore(gone.pop().id)
        elif verb == "purge" and gone:
            trash.purge(gone.pop(0).id)
        else:
            trash.sweep()
        assert {one.id for one in trash.list()} == {one.id for those in deleted.values() for one in those}
        assert {path.name for path in (home.folder / "trash").glob("*")} == {one.id for one in trash.list()}
        for each in NAMES:
            is_there(home, each)


STEPS: dict[str, Callable[[Home, Deleted | None], object]] = {
    "delete": lambda home, _: delete_dataset(home, "ann"),
    "restore": lambda home, deleted: Trash(home).restore(deleted.id),
    "purge": lambda home, deleted: Trash(home).purge(deleted.id),
}


@pytest.mark.parametrize("verb", STEPS)
@pytest.mark.parametrize("step", range(12))
def test_a_kill_while_deleting_or_restoring_leaves_one_whole_copy(tmp_path, monkeypatch, verb, step):
    home = Home(tmp_path)
    make_dataset(home, "ann")
    deleted = None if verb == "delete" else delete_dataset(home, "ann")
    left = [step]

    def dying(act):
        def call(*args, **kwargs):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return act(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(trash_module.os, "replace", dying(os.replace))
        patch.setattr(trash_module.shutil, "rmtree", dying(shutil.rmtree))
        patch.setattr(type(home.database), "transaction", dying(type(home.database).transaction))
        patch.setattr(Path, "unlink", dying(Path.unlink))
        with suppress(Killed):
            STEPS[verb](home, deleted)
    Trash(home).sweep()
    kept = Trash(home).list()
    if verb == "purge":
        # It can be restored as it was, or every file is gone.
        if kept:
            Trash(home).restore(kept[0].id)
        assert is_there(home, "ann") == bool(kept)
        assert bool(list((tmp_path / "uploads").rglob("*.wav"))) == bool(kept)
        return
    assert is_there(home, "ann") != bool(kept)
    if kept:
        Trash(home).restore(kept[0].id)
        assert is_there(home, "ann")
    with home.database.reading() as connection:
        stored = json.loads(connection.execute("SELECT job FROM datasets").fetchone()["job"])
    assert stored["name"] == "ann"
