"""What was uploaded for a dataset goes with it, unless another one is made of it."""

from __future__ import annotations

from pathlib import Path

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.storage.workspace import remove_uploads, uploads_folder


def upload(home: Path, dataset: str, name: str) -> Path:
    path = uploads_folder(home, dataset) / "000" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"sound")
    return path


def test_what_nobody_needs_is_removed_with_its_folder(tmp_path: Path):
    upload(tmp_path, "ann", "one.wav")
    kept = upload(tmp_path, "ben", "one.wav")
    remove_uploads(tmp_path, "ann", [BuildJob(name="ben", recordings=(str(kept),))])
    assert not uploads_folder(tmp_path, "ann").exists()
    assert kept.is_file()


def test_what_another_dataset_is_made_of_stays(tmp_path: Path):
    needed, text, gone = (upload(tmp_path, "ann", name) for name in ("one.wav", "one.txt", "two.wav"))
    other = BuildJob(name="ben", recordings=(str(needed),), transcripts=(str(text),))
    remove_uploads(tmp_path, "ann", [other])
    assert (needed.is_file(), text.is_file(), gone.exists()) == (True, True, False)
    whole = BuildJob(name="cleo", recordings=(str(tmp_path / "uploads"),))
    remove_uploads(tmp_path, "ann", [whole])
    assert needed.is_file()
