"""Stored files: the same bytes once, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.store.artifacts import Artifacts, write_whole
from backend.store.errors import ArtifactError


def test_the_same_bytes_are_stored_once_and_read_back(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    first, second = artifacts.put(b"sound", ".wav"), artifacts.put(b"sound", ".wav")
    assert first == second
    assert artifacts.read(first, ".wav") == b"sound"
    assert [path for path in artifacts.folder.rglob("*") if path.is_file()] == [artifacts.path(first, ".wav")]


def test_other_bytes_have_another_name(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    assert artifacts.put(b"one", ".wav") != artifacts.put(b"two", ".wav")


def test_a_missing_artefact_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="Build again"):
        Artifacts(tmp_path).read("0" * 32, ".wav")


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "inside").write_bytes(b"")
    with pytest.raises(ArtifactError):
        write_whole(tmp_path / "occupied", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["occupied"]


def test_a_large_file_is_moved_and_a_failed_one_removed(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    with artifacts.incoming(".wav") as file:
        file.write_bytes(b"sound")
        digest = artifacts.adopt(file, ".wav")
    assert digest == artifacts.put(b"sound", ".wav")

    def fail_in_the_middle() -> None:
        with artifacts.incoming(".wav") as half:
            half.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle()
    assert not any((artifacts.folder / "incoming").iterdir())
