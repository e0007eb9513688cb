"""`doctor --verify`: every byte that is kept is what was written, or is named; old homes know no hashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.commands.doctor import verify_home
from backend.doctor.verify import Condition, verify
from backend.settings import Settings
from backend.store.artifacts import Artifacts
from training.model.checkpoint.hashes import HASHES_FILE, find_damage, write_hashes

KEPT = (
    "voices/7f",
    "datasets/mine",
    "runs/one/dataset",
    "runs/one/checkpoints/step-00000004",
    "runs/one/export/base",
    "runs/one/exports/custom_voice",
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for name in KEPT:
        folder = home / name
        (folder / "inside").mkdir(parents=True)
        (folder / "inside" / "weights").write_bytes(b"0123456789" * 1000)
        (folder / "card.json").write_text("{}")
        write_hashes(folder)
    Artifacts(home).put(b"a clip", ".wav")
    (home / "runs/one/checkpoints/step-00000005.incomplete").mkdir()
    (home / "datasets/.mine.lock").touch()
    return home


def conditions(home: Path) -> dict[str, Condition]:
    return {f"{one.kind} {one.name}": one.condition for one in verify(home, lambda what, num_bytes: None)}


def test_what_is_as_it_was_written_is_intact(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(conditions(home)) == len(KEPT) + 1
    assert set(conditions(home).values()) == {Condition.INTACT}
    assert verify_home(Settings(home=home)) == 0
    assert f"7 intact, 0 damaged, 0 no hash recorded in {home}" in capsys.readouterr().out


@pytest.mark.parametrize("name", KEPT)
def test_one_flipped_bit_is_found_and_named(home: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray((home / name / "inside" / "weights").read_bytes())
    content[5000] ^= 1
    (home / name / "inside" / "weights").write_bytes(content)
    assert list(conditions(home).values()).count(Condition.DAMAGED) == 1
    assert verify_home(Settings(home=home)) == 1
    assert "damaged: inside/weights" in capsys.readouterr().out


def test_a_damaged_clip_is_found_by_its_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (clip,) = home.glob("artifacts/??/*.wav")
    clip.write_bytes(b"a clap")
    assert verify_home(Settings(home=home)) == 1
    assert f"damaged: {clip.name}" in capsys.readouterr().out


def test_what_an_earlier_version_wrote_is_not_called_broken(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in KEPT:
        (home / name / HASHES_FILE).unlink()
    assert verify_home(Settings(home=home)) == 0
    assert "1 intact, 0 damaged, 6 no hash recorded" in capsys.readouterr().out


def test_a_home_that_is_empty_or_missing_is_intact(tmp_path: Path) -> None:
    assert verify_home(Settings(home=tmp_path / "nowhere")) == 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"sha256": 3}', b"\xff\xfe", b'{"sha256": {"../x": "0"}}'])
def test_a_list_of_hashes_that_is_damaged_itself_shows(tmp_path: Path, content: bytes) -> None:
    (tmp_path / HASHES_FILE).write_bytes(content)
    assert find_damage(tmp_path)


def test_files_that_came_later_are_not_damage_and_missing_ones_are(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a")
    write_hashes(tmp_path)
    (tmp_path / "in-use").touch()
    assert find_damage(tmp_path) == []
    (tmp_path / "kept").unlink()
    assert find_damage(tmp_path) == ["kept"]
