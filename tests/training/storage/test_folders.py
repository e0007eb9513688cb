"""Folders arrive whole or not at all, on both ends, whatever is cut, damaged or full on the way."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.object_server import Fault, FaultProxy
from training.errors import StorageDamaged, StorageError
from training.storage.folders import (
    MANIFEST_FILE,
    delete_folder,
    describe,
    get_folder,
    list_folders,
    put_folder,
    read_manifest,
)
from training.storage.objects import ObjectStore
from training.storage.uploads import UploadQueue


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "step-1"
    (folder / "state").mkdir(parents=True)
    (folder / "state" / "weights").write_bytes(b"w" * 5000)
    (folder / "state" / "same").write_bytes(b"w" * 5000)
    (folder / "progress.json").write_text("{}")
    (folder / "empty").touch()
    return folder


@pytest.mark.parametrize("reads_back", [False, True])
def test_a_folder_comes_back_as_it_was(store: ObjectStore, folder: Path, tmp_path: Path, reads_back: bool) -> None:
    assert get_folder(store, "runs/step-1", tmp_path / "back") is None
    put_folder(store, "runs/step-1", folder, reads_back=reads_back)
    assert list_folders(store, "runs") == ["step-1"]
    manifest = get_folder(store, "runs/step-1", tmp_path / "back")
    assert manifest == describe(folder) == describe(tmp_path / "back")
    delete_folder(store, "runs/step-1")
    assert store.sizes("") == {}


def test_what_a_cut_upload_left_is_not_there_and_the_next_goes_on_from_it(
    bucket: ObjectStore, folder: Path, proxy: FaultProxy, tmp_path: Path
) -> None:
    for number in range(8):
        (folder / f"shard-{number}").write_bytes(bytes([number]) * 100)
    impatient = ObjectStore(bucket.location, patience_seconds=0)
    first = describe(folder).files["shard-0"].sha256
    proxy.faults.append(Fault("cut", "PUT", first, times=1000))
    with pytest.raises(StorageError):
        put_folder(impatient, "run", folder)
    assert read_manifest(bucket, "run") is None
    assert get_folder(bucket, "run", tmp_path / "back") is None
    assert list_folders(bucket, "") == []
    there = set(bucket.sizes("run"))
    proxy.faults.clear()
    proxy.requests.clear()
    put_folder(bucket, "run", folder)
    sent = {path.rpartition("/")[2].partition("?")[0] for path in proxy.sent("PUT")}
    assert sent.isdisjoint(there), "nothing is sent twice"
    assert get_folder(bucket, "run", tmp_path / "back") == describe(folder)


def test_a_manifest_that_is_there_names_only_what_is_there(store: ObjectStore, folder: Path) -> None:
    """The order of things: every object before the manifest."""
    manifest = put_folder(store, "run", folder)
    there = store.sizes("run")
    assert {file.sha256: file.num_bytes for file in manifest.files.values()} == {
        name: size for name, size in there.items() if name != MANIFEST_FILE
    }


def test_damage_in_the_storage_is_found_and_nothing_takes_its_place(
    store: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    manifest = put_folder(store, "run", folder)
    name = f"run/{manifest.files['progress.json'].sha256}"
    store.write(name, b"[]")
    with pytest.raises(StorageDamaged, match=r"progress\.json .*is not what was stored"):
        get_folder(store, "run", tmp_path / "back")
    store.delete(name)
    with pytest.raises(StorageDamaged, match=r"progress\.json .*is missing"):
        get_folder(store, "run", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    store.write(f"run/{MANIFEST_FILE}", b'{"files": {')
    with pytest.raises(StorageDamaged, match=r"manifest\.json of run"):
        get_folder(store, "run", tmp_path / "back")


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", ".", "a//b"])
def test_a_manifest_cannot_name_a_file_outside_its_folder(store: ObjectStore, tmp_path: Path, name: str) -> None:
    raw = {"files": {name: {"sha256": "0" * 64, "num_bytes": 1}}}
    store.write(f"run/{MANIFEST_FILE}", json.dumps(raw).encode())
    with pytest.raises(StorageDamaged):
        get_folder(store, "run", tmp_path / "back")


def test_a_byte_that_the_line_changed_is_fetched_again(
    bucket: ObjectStore, folder: Path, proxy: FaultProxy, tmp_path: Path
) -> None:
    manifest = put_folder(bucket, "run", folder)
    proxy.faults.append(Fault("spoilt", "GET", manifest.files["progress.json"].sha256))
    assert get_folder(bucket, "run", tmp_path / "back") == manifest
    assert proxy.faults[0].times == 0


def test_a_cut_download_goes_on_where_it_stopped(
    bucket: ObjectStore, folder: Path, proxy: FaultProxy, tmp_path: Path
) -> None:
    manifest = put_folder(bucket, "run", folder)
    weights, progress = (manifest.files[name].sha256 for name in ("state/weights", "progress.json"))
    impatient = ObjectStore(bucket.location, patience_seconds=0)
    proxy.faults.append(Fault("cut", "GET", progress, times=1000))
    with pytest.raises(StorageError):
        get_folder(impatient, "run", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    came = {path.name for path in (tmp_path / ".back.coming").rglob("*") if path.is_file()}
    proxy.faults.clear()
    proxy.requests.clear()
    assert get_folder(bucket, "run", tmp_path / "back") == manifest
    if "weights" in came and "same" in came:
        assert not proxy.sent("GET", weights)
    assert not (tmp_path / ".back.coming").exists()


def test_a_full_disk_on_the_worker_is_said_and_the_rest_comes_once_there_is_room(
    store: ObjectStore, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_folder(store, "run", folder)
    with monkeypatch.context() as full:
        full.setattr("training.storage.folders.free_bytes_at", lambda _: 1000)
        with pytest.raises(StorageError, match=r"has no room for run: it needs .* MB.* Free some space"):
            get_folder(store, "run", tmp_path / "back")
    if os.path.exists("/dev/full"):
        # The system's own ENOSPC, after the free room had been looked at.
        coming = tmp_path / ".back.coming" / "progress.json.partial"
        coming.parent.mkdir(exist_ok=True)
        coming.symlink_to("/dev/full")
        with pytest.raises(StorageError, match=r"became full while run was fetched .* Free some space"):
            get_folder(store, "run", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert get_folder(store, "run", tmp_path / "back") == describe(folder)


def test_two_who_fetch_the_same_folder_both_have_it(bucket: ObjectStore, folder: Path, tmp_path: Path) -> None:
    manifest = put_folder(bucket, "run", folder)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(get_folder(bucket, "run", tmp_path / "back"))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [manifest] * 3


def test_a_file_that_changes_while_it_is_sent_is_not_stored(store: ObjectStore, folder: Path) -> None:
    manifest = describe(folder)
    (folder / "progress.json").write_text("[]")
    with pytest.raises(StorageError, match="is not what it was when it was written"):
        put_folder(store, "run", folder, manifest)
    assert read_manifest(store, "run") is None
    (folder / "progress.json").unlink()
    with pytest.raises(StorageError, match="could not be stored"):
        put_folder(store, "run", folder, manifest)


def test_uploads_run_beside_the_caller_until_too_many_wait(tmp_path: Path) -> None:
    may_send, began, sent, told = threading.Semaphore(0), threading.Event(), [], []

    def send(folder: Path) -> None:
        began.set()
        may_send.acquire()
        sent.append(folder.name)

    uploads = UploadQueue(send, told.append, max_waiting=1)
    uploads.submit(tmp_path / "1")
    began.wait(10)
    uploads.submit(tmp_path / "2")
    assert uploads.is_pending(tmp_path / "1")
    assert uploads.is_pending(tmp_path / "2")
    third = threading.Thread(target=uploads.submit, args=(tmp_path / "3",))
    third.start()
    third.join(0.1)
    assert third.is_alive(), "one is being sent and one waits"
    may_send.release()
    third.join(10)
    assert not third.is_alive()
    assert len(told) == 1
    may_send.release(2)
    assert uploads.drain() == {}
    assert sent == ["1", "2", "3"]
    assert not uploads.is_pending(tmp_path / "3")


def test_a_folder_that_failed_is_told_of_and_may_be_sent_again(tmp_path: Path) -> None:
    told: list[str] = []
    problems = [StorageError("The storage is full.")]

    def send(folder: Path) -> None:
        if problems:
            raise problems.pop()

    uploads = UploadQueue(send, told.append)
    uploads.submit(tmp_path / "1")
    assert list(uploads.drain()) == [tmp_path / "1"]
    assert told == [f"1 was not uploaded and stays in {tmp_path}. The storage is full."]
    uploads.submit(tmp_path / "1")
    assert uploads.drain() == {}
