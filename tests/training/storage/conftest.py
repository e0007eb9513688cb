"""A server for the tests of the storage, and what is stored in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.object_server import BUCKET, FaultProxy, object_server, variables
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore


@pytest.fixture(scope="session")
def server_port() -> Iterator[int]:
    with object_server() as port:
        yield port


@pytest.fixture
def proxy(server_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """The way to the server, and what goes wrong on it."""
    with FaultProxy(server_port) as proxy:
        for name, value in variables(proxy.port).items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def bucket(proxy: FaultProxy, request: pytest.FixtureRequest) -> ObjectStore:
    """A part of the bucket that is this test's own."""
    own = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
    return ObjectStore(StorageLocation("s3", f"{BUCKET}/{own}"), patience_seconds=20)


@pytest.fixture(params=["s3", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Either kind."""
    if request.param == "s3":
        found: ObjectStore = request.getfixturevalue("bucket")
        return found
    (tmp_path / "shared").mkdir()
    return ObjectStore(StorageLocation("file", str(tmp_path / "shared")))
