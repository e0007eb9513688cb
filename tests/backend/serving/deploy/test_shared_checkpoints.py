"""Checkpoints that a cluster speaks with whose machines do not see the home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from backend.serving.deploy import shared_checkpoints
from backend.serving.deploy.shared_checkpoints import SharedCheckpoints
from backend.serving.requests import Reference, RunCheckpoint, SynthesisRequest
from backend.serving.voice_files import VoiceFiles
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    (tmp_path / "storage").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return ObjectStore(StorageLocation.parse(f"file://{tmp_path / 'storage'}"))


def checkpoint_at(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(folder.name.encode())
    return folder


def _checkpoint_of(request: SynthesisRequest) -> Path:
    assert isinstance(request.voice, Reference | RunCheckpoint)
    assert request.voice.checkpoint is not None
    return request.voice.checkpoint


@pytest.mark.parametrize("is_of_run", [True, False])
def test_a_machine_without_the_home_fetches_what_a_contender_speaks_with(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, is_of_run: bool
) -> None:
    """Compare and the samples of a run said that the cluster cannot see the files."""
    home = tmp_path / "home"
    folder = checkpoint_at(home / "runs" / "one" / "export" if is_of_run else tmp_path / "base")
    recording = tmp_path / "anna.wav"
    voice = (
        RunCheckpoint(name="step-1", checkpoint=folder)
        if is_of_run
        else Reference(name="Anna", recording=recording, checkpoint=folder)
    )
    asked = SynthesisRequest(voice=voice, text="Hi.")
    looks: list[Sequence[Path]] = []

    def unseen(paths: Sequence[Path]) -> list[Sequence[Path]]:
        looks.append(paths)
        return [[], paths]

    monkeypatch.setattr(shared_checkpoints, "unseen_paths", unseen)
    shared = SharedCheckpoints(store, home)
    sent = shared.share(asked)
    assert shared.share(asked) == sent
    assert looks == [[folder]]
    assert isinstance(sent.voice, Reference | RunCheckpoint)
    stored = str(sent.voice.stored_checkpoint)
    assert stored.startswith("runs/one/speech/" if is_of_run else "models/")

    folder.rename(tmp_path / "before")
    assert shared.share(asked) == asked
    checkpoint_at(folder)
    (folder / "model.safetensors").write_bytes(b"exported anew")
    assert shared.share(asked) != sent
    sent = shared.share(asked)
    assert len(looks) == 2

    files = VoiceFiles(store, tmp_path / "voices")
    assert _checkpoint_of(files.here(sent)) == folder
    folder.rename(tmp_path / "gone")
    found = _checkpoint_of(files.here(sent))
    assert found.is_relative_to(tmp_path / "cache")
    assert (found / "model.safetensors").read_bytes() == (tmp_path / "gone" / "model.safetensors").read_bytes()


def test_what_all_machines_see_is_not_stored(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = SynthesisRequest(
        voice=RunCheckpoint(name="step-1", checkpoint=checkpoint_at(tmp_path / "runs" / "one")), text="Hi."
    )
    monkeypatch.setattr(shared_checkpoints, "unseen_paths", lambda _: [[], []])
    assert SharedCheckpoints(store, tmp_path).share(asked) == asked
    monkeypatch.setattr(shared_checkpoints, "unseen_paths", lambda paths: [paths])
    assert SharedCheckpoints(None, tmp_path).share(asked) == asked
    assert not list((tmp_path / "storage").iterdir())
