"""The sound of takes in a storage: there, back where a home has lost it, gone when the take is."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from backend.store.home import Home
from backend.takes.stored_takes import StoredTakes
from backend.takes.takes import Takes
from tests.backend.takes.test_takes import add, open_takes
from training.errors import StorageDamaged, StorageError
from training.storage.folders import list_folders, read_manifest
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore

PLACE = "takes/home-1"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    (tmp_path / "shared").mkdir()
    return ObjectStore(StorageLocation("file", str(tmp_path / "shared")), patience_seconds=0)


@pytest.fixture
def takes(tmp_path: Path) -> Takes:
    return open_takes(tmp_path / "home")


@pytest.fixture
def stored(tmp_path: Path, takes: Takes, store: ObjectStore) -> StoredTakes:
    return StoredTakes(Home(tmp_path / "home"), store, "home-1")


def test_a_take_whose_file_is_lost_comes_back(stored: StoredTakes, takes: Takes, store: ObjectStore) -> None:
    take, other = add(takes), add(takes.of_tenant("somebody"), content=b"of a tenant")
    assert stored.sync() == 0
    assert set(list_folders(store, PLACE)) == {take.id, other.id}
    for path in takes.folder.glob("*.*"):
        path.unlink()
    assert takes.list() == ()
    assert stored.sync() == 2
    assert takes.get(take.id).path.read_bytes() == b"sound"
    assert takes.of_tenant("somebody").get(other.id).path.read_bytes() == b"of a tenant"
    assert not list((takes.folder / "incoming").iterdir())


def test_after_a_restart_nothing_is_sent_again_and_lost_files_come_back(
    stored: StoredTakes, takes: Takes, store: ObjectStore, tmp_path: Path
) -> None:
    take = add(takes)
    stored.sync()
    before = (tmp_path / "shared" / PLACE / take.id / "manifest.json").stat().st_mtime_ns
    StoredTakes(Home(tmp_path / "home"), store, "home-1").sync()
    assert (tmp_path / "shared" / PLACE / take.id / "manifest.json").stat().st_mtime_ns == before
    take.path.unlink()
    assert StoredTakes(Home(tmp_path / "home"), store, "home-1").sync() == 1
    assert takes.get(take.id) == take


def test_another_sound_takes_the_place_of_the_first(stored: StoredTakes, takes: Takes, store: ObjectStore) -> None:
    take = add(takes)
    stored.sync()
    time.sleep(0.01)
    with takes.incoming() as file:
        file.write_bytes(b"spoken again")
        takes.replace(take, file)
    stored.sync()
    manifest = read_manifest(store, f"{PLACE}/{take.id}")
    assert manifest is not None
    assert manifest.num_bytes == len(b"spoken again")


def test_what_is_deleted_stays_as_long_as_it_can_be_restored(
    stored: StoredTakes, takes: Takes, store: ObjectStore
) -> None:
    take = add(takes)
    stored.sync()
    deleted = takes.delete(take.id)
    stored.sync()
    assert list_folders(store, PLACE) == [take.id]
    takes.trash.purge(deleted.id)
    stored.sync()
    assert store.sizes(PLACE) == {}


def test_homes_that_share_a_storage_leave_each_other_alone(
    stored: StoredTakes, takes: Takes, store: ObjectStore, tmp_path: Path
) -> None:
    take = add(takes)
    stored.sync()
    StoredTakes(Home(tmp_path / "other"), store, "home-2").sync()
    assert list_folders(store, PLACE) == [take.id]


def test_damage_and_a_missing_storage_are_told_and_cost_nothing_here(
    stored: StoredTakes, takes: Takes, store: ObjectStore, tmp_path: Path
) -> None:
    kept, lost = add(takes), add(takes, content=b"another")
    stored.sync()
    manifest = read_manifest(store, f"{PLACE}/{lost.id}")
    assert manifest is not None
    (file,) = manifest.files.values()
    store.write(f"{PLACE}/{lost.id}/{file.sha256}", b"chopped")
    lost.path.unlink()
    later = add(takes)
    with pytest.raises(StorageDamaged):
        stored.sync()
    assert later.id in list_folders(store, PLACE)
    shutil.move(tmp_path / "shared", tmp_path / "unmounted")
    new = add(takes)
    with pytest.raises(StorageError):
        stored.sync()
    assert {take.id for take in takes.list()} == {kept.id, later.id, new.id}
    assert not (tmp_path / "shared").exists(), "nothing is written where the disk was mounted"
