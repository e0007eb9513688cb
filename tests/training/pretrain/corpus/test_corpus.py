import functools
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from training.pretrain import __main__ as command_line
from training.pretrain.corpus import corpus, make_corpus, speakers
from training.pretrain.corpus import tts_engines as engines
from training.pretrain.corpus.corpus import open_corpus
from training.pretrain.corpus.normalise import key
from training.pretrain.corpus.text_sources import load_text_sources
from training.pretrain.errors import CorpusError

ROOT = Path(__file__).parents[4]
SIZES = ["--hours", "0.015", "--held-out", "4", "--shard-size", "8", "--recordings", "none"]

pytestmark = pytest.mark.needs_program("flite", "espeak-ng", "fortunes", "wamerican")


def make(out: Path, *arguments: str) -> int:
    return command_line.main(["corpus", "--out", str(out), *SIZES, *arguments])


def contents(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module", autouse=True)
def _sources_read_once() -> Iterator[None]:
    """Reading and cleaning the sources takes two seconds, and each run would do it again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_corpus, "load_text_sources", functools.cache(load_text_sources))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "made"
    assert make(folder, "--threads", "2") == 0
    return folder


def test_the_number_of_threads_changes_nothing(made: Path, tmp_path: Path):
    assert make(tmp_path / "again", "--threads", "1") == 0
    assert contents(tmp_path / "again") == contents(made)


def test_a_killed_run_is_continued_to_the_same_bytes(made: Path, tmp_path: Path):
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "training.pretrain", "corpus", "--out", str(out), *SIZES, "--threads", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while not corpus.shard_index(out / corpus.TRAIN, 0).is_file() and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    first_shard = corpus.shard_audio(out / corpus.TRAIN, 0)
    written_at = first_shard.stat().st_mtime_ns
    assert contents(out) != contents(made)
    for leftover in out.rglob("*.tmp"):
        leftover.unlink()
    assert make(out) == 0
    assert contents(out) == contents(made)
    assert first_shard.stat().st_mtime_ns == written_at


def test_more_hours_add_shards_and_leave_the_others_alone(made: Path, tmp_path: Path):
    out = tmp_path / "grown"
    shutil.copytree(made, out)
    before = contents(out)
    assert make(out, "--hours", "0.025") == 0
    after = contents(out)
    assert open_corpus(out).hours >= 0.025
    assert {name: digest for name, digest in after.items() if name in before and name != corpus.MANIFEST} == {
        name: digest for name, digest in before.items() if name != corpus.MANIFEST
    }


def test_another_seed_needs_another_folder(made: Path, capsys: pytest.CaptureFixture[str]):
    before = contents(made)
    assert make(made, "--seed", "2") == 1
    assert "seed 1 instead of 2" in capsys.readouterr().err
    assert contents(made) == before


def test_the_reader_returns_what_was_said(made: Path):
    part = open_corpus(made)
    assert len(part) >= 16
    audio, text, name = part.utterance(9)
    said_now = engines.synthesize(speakers.by_name()[name], text)
    np.testing.assert_array_equal(audio, said_now)
    np.testing.assert_array_equal(part.num_samples, [len(utterance.audio) for utterance in part])
    np.testing.assert_array_equal(part.utterance(-1).audio, part.utterance(len(part) - 1).audio)
    assert sorted(number for numbers in part.by_speaker().values() for number in numbers) == list(range(len(part)))


def test_parts_keep_voices_and_texts_apart(made: Path):
    parts = {name: open_corpus(made, name) for name in corpus.PARTS}
    extra = [speaker for engine in speakers.EXTRA_VOICES for speaker in speakers.extra_speakers(engine)]
    training = {speaker.name for speaker in (*speakers.training_speakers(), *extra, *speakers.like_speakers())}
    said_by = {name: {entry.speaker for entry in part.entries} for name, part in parts.items()}
    assert said_by[corpus.TRAIN] <= training
    assert said_by[corpus.HELD_OUT_TEXTS] <= training
    assert said_by[corpus.HELD_OUT_VOICE] == {speakers.HELD_OUT_VOICE}
    assert not said_by[corpus.HELD_OUT_PARAMETERS] & training
    texts = {name: {key(entry.text) for entry in part.entries} for name, part in parts.items()}
    held_out = set().union(*(texts[name] for name in corpus.PARTS if name != corpus.TRAIN))
    assert not held_out & texts[corpus.TRAIN]


def test_voices_of_other_languages_have_a_part_of_their_own_where_there_are_any(made: Path):
    foreign = {speaker.name for speaker in engines.installed_foreign_speakers()}
    assert corpus.has_part(made, corpus.OTHER_LANGUAGES) == bool(foreign)
    if foreign:
        assert {entry.speaker for entry in open_corpus(made, corpus.OTHER_LANGUAGES).entries} <= foreign


def test_voices_of_other_languages_wait_where_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    foreign = tuple(speaker for speaker in speakers.foreign_speakers() if speaker.engine == speakers.RHVOICE)
    monkeypatch.setattr(engines, "installed_foreign_speakers", lambda: foreign)
    monkeypatch.setattr(engines, "installed_like_speakers", lambda: ())
    monkeypatch.setattr(engines, "versions", dict)
    lines: list[str] = []
    make_corpus.make_corpus(
        tmp_path,
        hours=0.01,
        seed=1,
        num_threads=2,
        num_held_out=2,
        shard_size=2,
        report=lines.append,
        recordings=tmp_path / "none",
        until=0.0,
    )
    assert corpus.has_part(tmp_path, corpus.TRAIN)
    assert not (tmp_path / corpus.OTHER_LANGUAGES).exists()
    assert not any(corpus.OTHER_LANGUAGES in line for line in lines)


def test_the_manifest_counts_what_is_there(made: Path):
    manifest = json.loads((made / corpus.MANIFEST).read_text(encoding="utf-8"))
    assert manifest["seed"] == 1
    foreign = {speaker.engine for speaker in engines.installed_foreign_speakers()}
    besides = {*engines.installed_extras(), *foreign} - {speakers.RECORDED}
    assert set(manifest["engines"]) == {"flite", "espeak-ng", *besides}
    for name in corpus.PARTS:
        part = open_corpus(made, name)
        assert manifest["parts"][name]["utterances"] == len(part)
        assert manifest["parts"][name]["hours"] == pytest.approx(part.hours, abs=1e-4)


def test_a_missing_engine_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CorpusError, match="apt-get install flite"):
        engines.versions()


def test_an_empty_folder_is_no_corpus(tmp_path: Path):
    with pytest.raises(CorpusError, match="holds no corpus"):
        open_corpus(tmp_path)
