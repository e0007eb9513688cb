"""The embedded model on machines of a cluster that have no checkout."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from backend.cluster.errors import ClusterError
from backend.serving.deploy import shared_model
from backend.serving.deploy.shared_model import model_here, share_model
from backend.serving.settings import EngineSettings
from tests.golden import GOLDEN_CHECKPOINT
from training.errors import StorageError
from training.model.hub import hub
from training.model.hub.hub import EMBEDDED_MODEL


def test_a_machine_without_the_folder_fetches_what_was_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shipped code has no assets: such a machine said that the embedded model was no part of this copy of Encore."""
    (tmp_path / "storage").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    embedded = tmp_path / "checkout" / "mini"
    embedded.parent.mkdir()
    embedded.symlink_to(GOLDEN_CHECKPOINT)
    monkeypatch.setattr(hub, "EMBEDDED_FOLDER", embedded)
    asked = EngineSettings(model=EMBEDDED_MODEL)
    monkeypatch.setattr(shared_model, "unseen_paths", lambda _: [[]])
    assert model_here(share_model(asked)).samefile(GOLDEN_CHECKPOINT)
    assert share_model(asked).stored_model is None

    monkeypatch.setattr(shared_model, "unseen_paths", lambda folders: [[], folders])
    with pytest.raises(ClusterError, match=r"do not see .* set ENCORE_STORAGE"):
        share_model(asked)
    shared = share_model(asked.model_copy(update={"storage": f"file://{tmp_path / 'storage'}"}))
    assert model_here(shared).samefile(GOLDEN_CHECKPOINT)

    embedded.unlink()
    there = shared.model_copy(update={"model_folder": embedded})
    fetched = model_here(there)
    assert fetched.is_relative_to(tmp_path / "cache")
    names = [path.relative_to(GOLDEN_CHECKPOINT) for path in GOLDEN_CHECKPOINT.rglob("*") if path.is_file()]
    assert names
    assert all((fetched / name).read_bytes() == (GOLDEN_CHECKPOINT / name).read_bytes() for name in names)

    (tmp_path / "storage").rename(tmp_path / "gone")
    with pytest.raises(StorageError, match=rf"This was on the machine {re.escape(socket.gethostname())}\."):
        model_here(there)
