"""Objects on a real S3 server and in a folder, and what is said when a storage does not do as it should."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from tests.object_server import BUCKET, Fault, FaultProxy
from training.errors import StorageError, StorageRefused, StorageUnreachable
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.storage.watched import WatchedObject


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/some/prefix/", "s3://bucket/some/prefix"),
        ("gs://bucket/prefix", "gs://bucket/prefix"),
        ("file:///shared/encore/", "file:///shared/encore"),
    ],
)
def test_a_location_is_read_from_its_url(url: str, said: str) -> None:
    assert str(StorageLocation.parse(url)) == said


@pytest.mark.parametrize(
    "url", ["", "bucket", "/shared", "s3://", "s3:///x", "file://host/x", "file:///", "http://x/y", "s3://k:s@b/p"]
)
def test_any_other_form_is_refused_and_the_forms_are_named(url: str) -> None:
    with pytest.raises(ValueError, match=r"s3://bucket/prefix.*file:///folder"):
        StorageLocation.parse(url)


def test_what_was_written_is_read_listed_and_deleted(store: ObjectStore) -> None:
    assert store.read("a/one") is None
    assert store.sizes("") == {}
    store.write("a/one", b"first")
    store.write("a/one", b"second")
    store.write("b", b"")
    assert store.read("a/one") == b"second"
    assert pickle.loads(pickle.dumps(store)).read("b") == b""
    assert store.sizes("") == {"a/one": 6, "b": 0}
    store.delete("a/one")
    store.delete("a/one")
    store.delete_below("a")
    assert store.sizes("") == {"b": 0}


def test_a_large_file_is_the_same_there_and_back(store: ObjectStore, tmp_path: Path) -> None:
    """Larger than the parts in which it is sent."""
    content = bytes(range(256)) * 50_000
    (tmp_path / "large").write_bytes(content)
    sent = store.upload("large", tmp_path / "large")
    assert store.digest("large") == sent == store.download("large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content


def test_a_missing_bucket_is_not_taken_for_an_empty_one(proxy: FaultProxy, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"The bucket nowhere of ENCORE_STORAGE does not exist\. Make it"):
        ObjectStore(StorageLocation.parse("s3://nowhere/runs")).read("one")
    with pytest.raises(StorageError, match=r"does not exist here\. Make it, or mount"):
        ObjectStore(StorageLocation.parse(f"file://{tmp_path}/unmounted")).sizes("")


def test_wrong_credentials_are_refused_at_once_in_a_sentence(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other-key")
    began = time.monotonic()
    with pytest.raises(StorageRefused, match=r"refused .*Check AWS_ACCESS_KEY_ID"):
        ObjectStore(StorageLocation.parse(f"s3://{BUCKET}/x")).write("one", b"1")
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(("kind", "method"), [("busy", "GET"), ("busy", "PUT"), ("cut", "PUT"), ("slow", "GET")])
def test_what_passes_is_tried_again_until_it_succeeds(
    bucket: ObjectStore, proxy: FaultProxy, kind: str, method: str
) -> None:
    bucket.write("one", b"x" * 1000)
    proxy.faults.append(Fault(kind, method, "/one", times=1 if kind == "slow" else 3, seconds=0.5))
    bucket.write("one", b"y" * 1000)
    assert bucket.read("one") == b"y" * 1000
    assert proxy.faults[0].times == 0


def test_a_storage_that_never_answers_is_given_up_with_what_to_check(proxy: FaultProxy) -> None:
    proxy.faults.append(Fault("busy", times=1000))
    store = ObjectStore(StorageLocation("s3", BUCKET), patience_seconds=1)
    with pytest.raises(StorageUnreachable, match=r"does not answer .*AWS_ENDPOINT_URL"):
        store.write("one", b"1")


def test_what_the_network_says_is_passed_on(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageUnreachable, match=r"does not answer \(Could not connect"):
        ObjectStore(StorageLocation("s3", BUCKET), patience_seconds=0).read("one")


def test_a_watched_object_is_fetched_when_it_changed_and_asked_for_every_few_seconds(
    bucket: ObjectStore, proxy: FaultProxy
) -> None:
    now = [0.0]
    watched = WatchedObject(bucket, "index", fresh_seconds=3, clock=lambda: now[0])
    assert watched.read() is None
    bucket.write("index", b"one")
    assert watched.read() is None
    now[0] = 3
    assert watched.read() == b"one"
    num_read = len(proxy.sent("GET", "/index"))
    now[0] = 6
    assert watched.read() == b"one"
    assert len(proxy.sent("GET", "/index")) == num_read, "the tag was enough"
    bucket.write("index", b"two")
    now[0] = 9
    assert watched.read() == b"two"
    bucket.delete("index")
    now[0] = 12
    assert watched.read() is None


def test_a_watched_object_outlasts_a_storage_that_does_not_answer(bucket: ObjectStore, proxy: FaultProxy) -> None:
    now = [0.0]
    impatient = ObjectStore(bucket.location, patience_seconds=0)
    watched = WatchedObject(impatient, "index", clock=lambda: now[0])
    bucket.write("index", b"one")
    assert watched.read() == b"one"
    now[0] = 10
    proxy.faults.append(Fault("busy", times=1000))
    assert watched.read() == b"one"
    num_requests = len(proxy.requests)
    now[0] = 20
    assert watched.read() == b"one"
    assert len(proxy.requests) == num_requests, "nobody waits again so soon"
    proxy.faults.clear()
    bucket.write("index", b"two")
    now[0] = 41
    assert watched.read() == b"two"
