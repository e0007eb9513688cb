"""The command line: build, show, export, and what it says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from backend.audio.writing import write_wav
from backend.commands.parser import build_parser, run_command
from backend.dataset.clips.gates import Verdict
from backend.dataset.datasets import Datasets
from backend.dataset.errors import DatasetEmpty, DatasetNotFound, EditInvalid
from backend.errors import SettingsError
from backend.settings import Settings
from backend.store.home import Home
from tests.backend.dataset.spoken import SENTENCES, speak, speak_folder
from tests.golden import GOLDEN_CHECKPOINT
from training.data.code_rows import read_code_rows


def run(home: Path, *argv: str | Path, storage: str | None = None) -> int:
    settings = Settings(home=home, storage=storage)
    return run_command(build_parser(settings, "dataset").parse_args(["dataset", *map(str, argv)]), settings)


@pytest.mark.needs_program("flite")
def test_build_says_what_came_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = speak_folder(tmp_path / "rec", SENTENCES[:3])
    (folder / "empty.wav").touch()
    options = ("--name", "ann", "--model", GOLDEN_CHECKPOINT, "--whisper", "none", "--workers", "0")
    assert run(tmp_path / "home", "build", folder, *options) == 0
    printed = capsys.readouterr().out
    assert "left out: rec/empty.wav is empty" in printed
    assert "accepted: 3 clips, 0.1 minutes" in printed
    assert "ann: done" in printed


def test_a_build_of_unusable_files_only_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "empty.wav").touch()
    write_wav(tmp_path / "rec" / "silence.wav", np.zeros(48_000, np.float32), 24_000)
    options = ("--name", "ann", "--model", GOLDEN_CHECKPOINT, "--whisper", "none", "--workers", "0")
    with pytest.raises(DatasetEmpty, match=r"^No clip could be cut from any recording\. The first one: "):
        run(tmp_path / "home", "build", tmp_path / "rec", *options)
    printed = capsys.readouterr().out
    assert "left out: rec/empty.wav is empty" in printed
    assert re.search(r"left out: rec/silence\.wav.*(speech|silent)", printed)


@pytest.mark.needs_program("flite")
def test_speech_without_a_pause_is_named_before_files_that_hold_no_speech(tmp_path: Path):
    """They alone were named, and what became of good recordings was nowhere said."""
    long = " and ".join(sentence.rstrip(".").lower() for sentence in SENTENCES)
    speak(tmp_path / "rec" / "long.wav", long, "rms")
    (tmp_path / "rec" / "empty.wav").touch()
    options = ("--name", "ann", "--model", GOLDEN_CHECKPOINT, "--whisper", "none", "--workers", "0")
    with pytest.raises(DatasetEmpty, match=r"The first one: The speech here is longer .* speak with pauses\.$"):
        run(tmp_path / "home", "build", tmp_path / "rec", *options)


def test_show_lists_every_clip_with_its_verdict(built_home: Path, capsys: pytest.CaptureFixture[str]):
    run(built_home, "show", "ann")
    printed = capsys.readouterr().out
    for sentence in SENTENCES:
        assert sentence in printed
    assert "/00.wav:\n  " in printed, "each clip stands below the recording it is from"
    assert len(re.findall(r" at +0:0\d\.\d ", printed)) == len(SENTENCES)
    assert "(reference)" in printed
    assert "(held out)" in printed
    run(built_home, "show")
    assert capsys.readouterr().out == "ann\n"


def test_export_names_the_folder(built_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(built_home, "export", "ann", tmp_path / "out")
    assert f"{len(SENTENCES)} clips" in capsys.readouterr().out
    assert (tmp_path / "out" / "train_raw.jsonl").is_file()


def test_style_says_how_clips_are_spoken(home: Path, capsys: pytest.CaptureFixture[str]):
    assert run(home, "style", "ann", "calm", "--all") == 0
    assert capsys.readouterr().out == f"styles: calm ({len(SENTENCES)})\n"
    run(home, "style", "ann", "excited", "--recording", "00.wav")
    assert capsys.readouterr().out == f"styles: calm ({len(SENTENCES) - 1}), excited (1)\n"
    assert {row.style for row in read_code_rows(home / "datasets" / "ann" / "rows.parquet")} == {"calm", "excited"}
    run(home, "show", "ann")
    assert "style excited)" in capsys.readouterr().out
    with pytest.raises(EditInvalid, match="No clip of ann is from a recording like 'nothing'"):
        run(home, "style", "ann", "calm", "--recording", "nothing")


def test_apply_brings_the_training_files_up_to_date(home: Path, capsys: pytest.CaptureFixture[str]):
    datasets = Datasets(Home(home))
    clip = datasets.show("ann").clips[0]
    datasets.overrule("ann", clip.key, Verdict.REJECTED)
    run(home, "show", "ann")
    assert "(changed since: `app.py dataset apply ann` applies the changes)" in capsys.readouterr().out
    assert run(home, "apply", "ann") == 0
    printed = capsys.readouterr().out
    assert "rejected: 1 clips" in printed
    assert "changed since" not in printed
    rows = read_code_rows(home / "datasets" / "ann" / "rows.parquet")
    assert clip.text not in {row.text for row in rows}
    assert len(rows) == len(SENTENCES) - 1


def test_fetch_brings_a_stored_dataset_to_another_machine(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "shared").mkdir()
    storage = f"file://{tmp_path}/shared"
    assert run(home, "style", "ann", "calm", "--all", storage=storage) == 0
    for home_there in (home, tmp_path / "new"):
        capsys.readouterr()
        run(home_there, "fetch", storage=storage)
        assert capsys.readouterr().out.startswith("ann, of the home ")
    run(tmp_path / "new", "fetch", "ann", storage=storage)
    assert "files fetched" in capsys.readouterr().out
    run(tmp_path / "new", "show", "ann")
    assert f"styles: calm ({len(SENTENCES)})" in capsys.readouterr().out
    with pytest.raises(SettingsError, match="ENCORE_STORAGE is not set"):
        run(home, "fetch")


def test_a_storage_that_is_away_costs_no_dataset(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(home, "style", "ann", "calm", "--all", storage=f"file://{tmp_path}/away") == 0
    assert "not everything is in the storage" in capsys.readouterr().err


def test_an_unknown_name_is_said(tmp_path: Path):
    with pytest.raises(DatasetNotFound, match="no dataset 'nobody'"):
        run(tmp_path, "show", "nobody")
