"""Datasets in a storage: there, back where a home has lost a part, gone when the dataset is for good."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.views import DatasetView
from backend.dataset.datasets import Datasets
from backend.dataset.errors import DatasetNameTaken, DatasetNotFound
from backend.dataset.fetch_stored import fetch_stored, find_stored, list_stored
from backend.dataset.storage.lock import dataset_lock
from backend.dataset.stored_datasets import StoredDatasets
from backend.store.errors import ArtifactError
from backend.store.home import Home
from backend.store.lock import acquire
from backend.store.trash import Trash
from backend.voices.consent import Consent
from tests.backend.audio.small_disk import run_on_small_disk
from tests.backend.dataset.spoken import SENTENCES
from tests.object_server import BUCKET, FaultProxy, object_server, variables
from training.errors import StorageDamaged, StorageError
from training.model.checkpoint.hashes import find_damage
from training.storage.folders import Manifest, list_folders, read_manifest
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore

FILES, NAMES = "datasets/home-1/files", "datasets/home-1/names"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    (tmp_path / "shared").mkdir()
    return ObjectStore(StorageLocation("file", str(tmp_path / "shared")), patience_seconds=0)


@pytest.fixture(scope="module")
def home_with_two(built_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The datasets `ann` and `ben`, of the same recordings; not to be changed."""
    home = shutil.copytree(built_home, tmp_path_factory.mktemp("two") / "home")
    datasets = Datasets(Home(home))
    datasets.build(datasets.job("ann").model_copy(update={"name": "ben"}))
    return home


@pytest.fixture
def two(home_with_two: Path, tmp_path: Path) -> Path:
    return shutil.copytree(home_with_two, tmp_path / "home")


@pytest.fixture
def stored(home: Path, store: ObjectStore) -> StoredDatasets:
    return StoredDatasets(Home(home), store, "home-1")


def manifest_of(store: ObjectStore, name: str = "ann") -> Manifest:
    manifest = read_manifest(store, f"{NAMES}/{name}")
    assert manifest is not None
    return manifest


def lose(home: Path, *patterns: str) -> dict[str, bytes]:
    """Remove files of a home; returns what was in them."""
    paths = [path for pattern in patterns for path in home.glob(pattern) if path.is_file()]
    assert paths
    content = {path.relative_to(home).as_posix(): path.read_bytes() for path in paths}
    for path in paths:
        path.unlink()
    return content


def whole(view: DatasetView) -> bool:
    return all(clip.audio.is_file() for clip in view.clips) and not find_damage(view.folder)


def test_a_dataset_whose_files_are_lost_comes_back(
    stored: StoredDatasets, datasets: Datasets, store: ObjectStore, home: Path, tmp_path: Path
) -> None:
    before = datasets.show("ann")
    assert stored.sync() == 0
    assert list_folders(store, NAMES) == ["ann"]
    shutil.copytree(home, tmp_path / "as-it-was")
    lost = lose(home, "datasets/ann/**/*", "artifacts/??/*", "cache/dataset/tokenize/*/*")
    shutil.rmtree(home / "datasets" / "ann")
    assert not datasets.is_built("ann")
    assert stored.sync() == len(lost)
    assert {path: (home / path).read_bytes() for path in lost} == lost
    assert datasets.show("ann") == before
    assert datasets.rows_are_current("ann")
    assert not list((home / "artifacts" / "incoming").iterdir())
    assert stored.sync() == 0


def test_the_same_bytes_are_stored_once(two: Path, store: ObjectStore, tmp_path: Path) -> None:
    StoredDatasets(Home(two), store, "home-1").sync()
    there = list((tmp_path / "shared" / FILES).iterdir())
    assert all(file.name == hashlib.sha256(file.read_bytes()).hexdigest() for file in there)
    sounds = {path.stem for path in two.glob("artifacts/??/*.wav")}
    assert len([file for file in there if file.name[:32] in sounds]) == len(sounds)


def test_sound_that_the_home_has_elsewhere_is_not_fetched(
    stored: StoredDatasets, home: Path, store: ObjectStore
) -> None:
    stored.sync()
    lose(home, "datasets/ann/audio/*")
    for sha256 in store.sizes(FILES):
        store.delete(f"{FILES}/{sha256}")
    assert stored.sync() == len(SENTENCES)
    assert all(file.stat().st_nlink > 1 for file in (home / "datasets" / "ann" / "audio").iterdir())


def test_after_a_restart_nothing_is_sent_again_but_what_the_storage_has_lost(
    stored: StoredDatasets, home: Path, store: ObjectStore, tmp_path: Path
) -> None:
    stored.sync()
    place = tmp_path / "shared" / NAMES / "ann" / "manifest.json"
    before = place.stat().st_mtime_ns
    StoredDatasets(Home(home), store, "home-1").sync()
    assert place.stat().st_mtime_ns == before
    gone, *_ = store.sizes(FILES)
    store.delete(f"{FILES}/{gone}")
    again = StoredDatasets(Home(home), store, "home-1")
    again.sync()
    again.sync()
    assert gone in store.sizes(FILES)


def test_edits_are_stored_and_rows_that_come_back_from_before_them_are_not_called_current(
    stored: StoredDatasets, datasets: Datasets, home: Path, store: ObjectStore
) -> None:
    stored.sync()
    first = manifest_of(store)
    key = next(clip.key for clip in datasets.show("ann").clips)
    datasets.edit_text("ann", key, "Something else.")
    stored.sync()
    (rows,) = [file for path, file in manifest_of(store).files.items() if path.startswith("rows/")]
    assert "Something else." in (store.read(f"{FILES}/{rows.sha256}") or b"").decode()
    datasets.rebuild_rows("ann")
    stored.sync()
    second = manifest_of(store)
    assert {path for path in first.files if first.files[path] != second.files.get(path)} >= {
        "datasets/ann/rows.parquet"
    }
    assert set(store.sizes(FILES)) == {file.sha256 for file in second.files.values()}
    datasets.edit_text("ann", key, "Something else again.")
    datasets.rebuild_rows("ann")
    shutil.rmtree(home / "datasets" / "ann")
    stored.sync()
    assert whole(datasets.show("ann"))
    assert not datasets.rows_are_current("ann")


def test_what_is_deleted_stays_as_long_as_it_can_be_restored(two: Path, store: ObjectStore) -> None:
    datasets, stored, home = Datasets(Home(two)), StoredDatasets(Home(two), store, "home-1"), two
    stored.sync()
    deleted = datasets.delete("ann")
    stored.sync()
    assert list_folders(store, NAMES) == ["ann", "ben"]
    Trash(Home(home)).purge(deleted.id)
    stored.sync()
    assert list_folders(store, NAMES) == ["ben"]
    lose(home, "artifacts/??/*")
    assert stored.sync() > 0
    assert whole(datasets.show("ben")), "what both had is still there"
    Trash(Home(home)).purge(datasets.delete("ben").id)
    stored.sync()
    assert store.sizes("datasets") == {}


def test_another_dataset_of_the_name_gets_nothing_of_the_first(
    stored: StoredDatasets, datasets: Datasets, home: Path, store: ObjectStore
) -> None:
    stored.sync()
    job = datasets.job("ann")
    Trash(Home(home)).purge(datasets.delete("ann").id)
    with Home(home).database.transaction() as connection:
        connection.execute(
            "INSERT INTO datasets (name, job, created_at) VALUES (?, ?, '2001-01-01 00:00:00')",
            (job.name, job.model_dump_json(exclude={"consents"})),
        )
    stored.sync()
    assert not (home / "datasets" / "ann").exists()
    assert store.sizes("datasets") == {}


def test_a_database_that_was_lost_takes_no_dataset_out_of_the_storage(
    stored: StoredDatasets, home: Path, store: ObjectStore
) -> None:
    stored.sync()
    with Home(home).database.transaction() as connection:
        connection.execute("DELETE FROM datasets")
    stored.sync()
    assert list_folders(store, NAMES) == ["ann"]


def test_the_background_does_it_at_once_and_a_second_process_leaves_it_at_that(
    stored: StoredDatasets, home: Path, store: ObjectStore
) -> None:
    held = acquire(home / ".stored_datasets.lock")
    assert held is not None
    stored.sync()
    assert list_folders(store, NAMES) == []
    os.close(held)
    ended, give_up = stored.keep_syncing(), time.monotonic() + 30
    while list_folders(store, NAMES) != ["ann"]:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    ended.set()


def test_homes_that_share_a_storage_leave_each_other_alone(
    stored: StoredDatasets, store: ObjectStore, tmp_path: Path
) -> None:
    stored.sync()
    StoredDatasets(Home(tmp_path / "other"), store, "home-2").sync()
    assert list_folders(store, NAMES) == ["ann"]


def test_a_dataset_that_is_being_edited_waits(stored: StoredDatasets, home: Path, store: ObjectStore) -> None:
    with dataset_lock(home, "ann"):
        stored.sync()
        assert list_folders(store, NAMES) == []
    stored.sync()
    assert list_folders(store, NAMES) == ["ann"]


def test_what_is_deleted_while_it_comes_back_stays_deleted(
    stored: StoredDatasets, datasets: Datasets, home: Path, tmp_path: Path
) -> None:
    is_first = threading.Lock()

    class Slow(ObjectStore):
        def download(self, name: str, file: Path) -> str:
            if is_first.acquire(blocking=False):
                datasets.delete("ann")
            return super().download(name, file)

    stored.sync()
    shutil.rmtree(home / "datasets" / "ann")
    slow = Slow(StorageLocation("file", str(tmp_path / "shared")), patience_seconds=0)
    StoredDatasets(Home(home), slow, "home-1").sync()
    assert datasets.list() == []
    assert not (home / "datasets" / "ann").exists()


def test_what_is_lost_on_both_sides_is_told_and_costs_nothing_else(two: Path, store: ObjectStore) -> None:
    datasets, stored, home = Datasets(Home(two)), StoredDatasets(Home(two), store, "home-1"), two
    stored.sync()
    first, second = sorted(home.glob("artifacts/??/*.wav"))[:2]
    lost = lose(home, "artifacts/??/*")
    for path, how in ((first, b"chopped"), (second, None)):
        file = manifest_of(store).files[path.relative_to(home).as_posix()]
        if how is None:
            store.delete(f"{FILES}/{file.sha256}")
        else:
            store.write(f"{FILES}/{file.sha256}", how)
    for copy in (*home.glob(f"datasets/*/audio/{first.name}"), *home.glob(f"datasets/*/audio/{second.name}")):
        copy.unlink()
    datasets.edit_text("ann", datasets.show("ann").clips[0].key, "Edited meanwhile.")
    with pytest.raises(StorageDamaged, match=r"of the dataset (ann|ben) is lost here, .*Build the dataset again\.$"):
        stored.sync()
    assert {path for path in lost if not (home / path).is_file()} == {
        path.relative_to(home).as_posix() for path in (first, second)
    }
    (rows,) = [file for path, file in manifest_of(store).files.items() if path.startswith("rows/")]
    assert b"Edited meanwhile." in (store.read(f"{FILES}/{rows.sha256}") or b""), "the rest is sent all the same"
    first.parent.mkdir(exist_ok=True)
    first.write_bytes(lost[first.relative_to(home).as_posix()])
    second.write_bytes(lost[second.relative_to(home).as_posix()])
    stored.sync()
    stored.sync()
    there = store.sizes(FILES)
    assert all(there.get(file.sha256) == file.num_bytes for file in manifest_of(store).files.values())


def test_what_was_damaged_here_is_not_sent(stored: StoredDatasets, home: Path, store: ObjectStore) -> None:
    sound = next(home.glob("artifacts/??/*.wav"))
    sound.unlink()
    sound.write_bytes(b"scratched")
    with pytest.raises(ArtifactError, match=r"of the dataset ann is not what it was when it was written"):
        stored.sync()
    assert list_folders(store, NAMES) == []


def test_a_missing_storage_is_told_and_nothing_is_written_where_it_was(
    stored: StoredDatasets, datasets: Datasets, home: Path, tmp_path: Path
) -> None:
    stored.sync()
    shutil.move(tmp_path / "shared", tmp_path / "unmounted")
    lose(home, "artifacts/??/*.safetensors")
    with pytest.raises(StorageError, match="does not exist here"):
        stored.sync()
    assert not (tmp_path / "shared").exists()
    shutil.move(tmp_path / "unmounted", tmp_path / "shared")
    assert stored.sync() == len(SENTENCES)
    assert whole(datasets.show("ann"))


def test_uploads_come_back_too_and_a_new_home_fetches_a_dataset_whole(
    datasets: Datasets, home: Path, store: ObjectStore, recordings: Path, job: Callable[..., BuildJob], tmp_path: Path
) -> None:
    upload = home / "uploads" / "ben" / "0123abcd" / "000" / "00.wav"
    upload.parent.mkdir(parents=True)
    for suffix in (".wav", ".txt"):
        shutil.copyfile(recordings / f"00{suffix}", upload.with_suffix(suffix))
    datasets.build(job(upload, "ben").agreed_by(Consent.give("Ben Author")))
    datasets.edit_text("ben", datasets.show("ben").clips[0].key, "Typed by Ben.")
    datasets.rebuild_rows("ben")
    stored = StoredDatasets(Home(home), store, "home-1")
    stored.sync()
    lost = lose(home, "uploads/**/*")
    assert stored.sync() == len(lost) == 2
    assert upload.read_bytes() == lost["uploads/ben/0123abcd/000/00.wav"]
    shutil.rmtree(home)
    new = Home(tmp_path / "new")
    there = Datasets(new)
    assert [one.name for one in list_stored(store)] == ["ann", "ben"]
    with pytest.raises(DatasetNotFound, match="There is no dataset 'carl' in the storage"):
        find_stored(store, "carl")
    assert fetch_stored(new, store, find_stored(store, "ben")) > 0
    view = there.show("ben")
    assert there.list() == ["ben"]
    assert whole(view)
    assert view.rows_are_current
    assert [clip.text for clip in view.clips] == ["Typed by Ben."]
    assert {consent.who for consent in there.consents("ben").values() if consent} == {"Ben Author"}
    assert there.job("ben").recordings[0] == str(new.folder / upload.relative_to(home))
    assert there.build(there.job("ben")).digest == view.digest
    with pytest.raises(DatasetNameTaken):
        fetch_stored(new, store, find_stored(store, "ben", "home"))
    StoredDatasets(new, store, "home-2").sync()
    with pytest.raises(DatasetNotFound, match=r"2 homes .* --from: home-1, home-2"):
        find_stored(store, "ben")


def test_nothing_comes_of_a_stored_dataset_that_is_not_whole(
    stored: StoredDatasets, store: ObjectStore, tmp_path: Path
) -> None:
    stored.sync()
    file = manifest_of(store).files["datasets/ann/rows.parquet"]
    store.delete(f"{FILES}/{file.sha256}")
    new = Home(tmp_path / "new")
    with pytest.raises(StorageDamaged, match="missing or damaged"):
        fetch_stored(new, store, find_stored(store, "ann"))
    assert Datasets(new).list() == []
    assert not [path for path in new.folder.rglob("*.*") if path.suffix in (".wav", ".parquet")]


ON_A_SMALL_DISK = """
import json, shutil, sys
from pathlib import Path
from backend.dataset.stored_datasets import StoredDatasets
from backend.errors import EncoreError
from backend.store.home import Home
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore

disk = Path(sys.argv[1])
shutil.copytree(HOME, disk / "home")
home = Home(disk / "home")
stored = StoredDatasets(home, ObjectStore(StorageLocation("file", SHARED), patience_seconds=0), "home-1")
stored.sync()
lost = [path for path in (*disk.glob("home/artifacts/??/*"), *disk.glob("home/datasets/ann/**/*")) if path.is_file()]
for path in lost:
    path.unlink()

def sync(room):
    filler = (disk / "filler").open("wb", buffering=0)
    num_bytes = shutil.disk_usage(disk).free - room
    filler.write(bytes(max(0, num_bytes)))
    try:
        error, num_back = "", stored.sync()
    except EncoreError as caught:
        error, num_back = str(caught), 0
    filler.close()
    (disk / "filler").unlink()
    left = [str(path) for path in disk.rglob("*") if path.name.endswith(".partial") or "incoming/" in str(path)]
    missing = sum(not path.is_file() for path in lost)
    print(json.dumps({"error": error, "left": left, "missing": missing, "num_back": num_back}), file=sys.stderr)

sync(room=0)
sync(room=2 * 2**20)
sync(room=16 * 2**20)
"""


def test_a_full_disk_is_told_and_the_rest_comes_when_there_is_room(home: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    names = f"HOME, SHARED = {str(home)!r}, {str(tmp_path / 'shared')!r}\n"
    said = run_on_small_disk(tmp_path / "disk", names + ON_A_SMALL_DISK, size="32m")
    full, some, enough = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert "has no room" in full["error"] or "disk is full" in full["error"], said
    assert 0 == enough["missing"] <= some["missing"] < full["missing"], said
    assert enough["error"] == ""
    assert [line["left"] for line in (full, some, enough)] == [[], [], []]
    assert "Traceback" not in said


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_server() as port, FaultProxy(port) as proxy:
        for name, value in variables(proxy.port).items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        yield ObjectStore(StorageLocation("s3", f"{BUCKET}/prefix"), patience_seconds=20)


def test_the_same_on_an_s3_server(bucket: ObjectStore, home: Path, datasets: Datasets) -> None:
    stored = StoredDatasets(Home(home), bucket, "home-1")
    before = datasets.show("ann")
    stored.sync()
    lost = lose(home, "datasets/ann/**/*", "artifacts/??/*")
    assert stored.sync() == len(lost)
    assert datasets.show("ann") == before
    assert whole(before)
    Trash(Home(home)).purge(datasets.delete("ann").id)
    stored.sync()
    assert bucket.sizes("datasets") == {}
