"""Weights are found where people have them, fetched with care where they have not, and missed with advice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.transcription.catalogue import cache_folder
from backend.transcription.errors import WhisperDamaged, WhisperUnavailable
from backend.transcription.whisper_weights import find_whisper, hash_file
from tests.backend.transcription.weights_server import CONTENT, DIGEST, WeightsServer, serve_weights
from training.model.errors import DownloadCancelled
from training.model.hub.hub import DownloadProgress


@pytest.fixture
def server() -> Iterator[WeightsServer]:
    with serve_weights() as server:
        yield server


@pytest.fixture(autouse=True)
def _may_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")  # the tests' own server is on this machine


def test_a_file_and_the_only_file_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.pt").write_bytes(b"x")
    assert find_whisper(str(tmp_path / "mine.pt")).path == tmp_path / "mine.pt"
    assert find_whisper(str(tmp_path)).path == tmp_path / "mine.pt"
    (tmp_path / "other.pt").write_bytes(b"x")
    with pytest.raises(WhisperDamaged, match=r"mine\.pt, other\.pt"):
        find_whisper(str(tmp_path))


@pytest.mark.parametrize("name", ["bass", "", "no/such/file.pt", "x" * 5_000, "null\0byte"])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(WhisperUnavailable, match="tiny, base, small"):
        find_whisper(name)


def test_what_is_in_the_cache_is_used_without_asking(tmp_path: Path) -> None:
    (tmp_path / "base.pt").write_bytes(CONTENT)
    addresses = {"base": f"http://127.0.0.1:9/{DIGEST}/base.pt"}
    found = find_whisper("base", folder=tmp_path, addresses=addresses)
    assert (found.path, found.published_name) == (tmp_path / "base.pt", "base")


def test_a_download_tells_how_far_it_is(tmp_path: Path, server: WeightsServer) -> None:
    seen: list[DownloadProgress] = []
    folder = tmp_path / "cache"
    found = find_whisper("base", folder=folder, addresses=server.address(), progress=seen.append)
    assert hash_file(found.path) == DIGEST
    assert seen[-1] == DownloadProgress(bytes_done=len(CONTENT), bytes_total=len(CONTENT), file="base.pt")
    assert not (folder / "base.pt.partial").exists()


def test_a_download_goes_on_where_it_broke_off(tmp_path: Path, server: WeightsServer) -> None:
    server.max_bytes = 3_000_000
    with pytest.raises(WhisperUnavailable, match="continues"):
        find_whisper("base", folder=tmp_path, addresses=server.address())
    server.max_bytes = len(CONTENT)
    find_whisper("base", folder=tmp_path, addresses=server.address())
    assert server.ranges == [None, "bytes=3000000-"]
    assert hash_file(tmp_path / "base.pt") == DIGEST


def test_a_download_that_was_complete_but_not_renamed(tmp_path: Path, server: WeightsServer) -> None:
    (tmp_path / "base.pt.partial").write_bytes(CONTENT)
    assert hash_file(find_whisper("base", folder=tmp_path, addresses=server.address()).path) == DIGEST


def test_a_cancelled_download_is_kept(tmp_path: Path, server: WeightsServer) -> None:
    with pytest.raises(DownloadCancelled):
        find_whisper("base", folder=tmp_path, addresses=server.address(), cancel=lambda: True)
    assert 0 < (tmp_path / "base.pt.partial").stat().st_size < len(CONTENT)


def test_what_arrives_wrong_does_not_stay(tmp_path: Path, server: WeightsServer) -> None:
    server.content = CONTENT[::-1]
    with pytest.raises(WhisperUnavailable, match="not the published file"):
        find_whisper("base", folder=tmp_path, addresses=server.address())
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_a_damaged_file_in_the_cache_is_fetched_again(tmp_path: Path, server: WeightsServer) -> None:
    (tmp_path / "base.pt").write_bytes(b"half")
    assert hash_file(find_whisper("base", folder=tmp_path, addresses=server.address()).path) == DIGEST


@pytest.mark.parametrize("cause", ["refused", "switched off"])
def test_without_a_network_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    if cause == "switched off":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    addresses = {"base": f"http://127.0.0.1:9/{DIGEST}/base.pt"}
    with pytest.raises(WhisperUnavailable, match=r"Put base\.pt into .*, give the path") as caught:
        find_whisper("base", folder=tmp_path, addresses=addresses)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path, server: WeightsServer) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(WhisperUnavailable, match="cannot be downloaded"):
        find_whisper("base", folder=blocked / "cache", addresses=server.address())


def test_the_cache_is_that_of_openai_whisper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "whisper"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path(os.path.expanduser("~"), ".cache", "whisper")
