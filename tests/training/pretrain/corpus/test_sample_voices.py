"""The sample recordings that come with the studio."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from training.model.project import PROJECT_FOLDER
from training.pretrain.corpus import tts_engines as engines
from training.pretrain.corpus.normalise import ALPHABET
from training.pretrain.corpus.sample_voices import INDEX, SAMPLES, make_sample_voices
from training.pretrain.corpus.speakers import HELD_OUT_VOICE

FOLDER = PROJECT_FOLDER / "assets" / "voices"
VOICES = json.loads((FOLDER / INDEX).read_text(encoding="utf-8"))["voices"]


@pytest.mark.parametrize("voice", VOICES, ids=lambda voice: voice["name"])
def test_a_recording_lasts_as_long_as_it_says_and_holds_its_sentences(voice: dict):
    samples, rate_hz = soundfile.read(FOLDER / voice["recording"], dtype="float32")
    assert rate_hz == 16_000
    assert samples.ndim == 1
    assert len(samples) / rate_hz == pytest.approx(voice["seconds"], abs=0.01)
    assert 30 <= voice["seconds"] <= 90
    assert 0.1 < np.abs(samples).max() < 0.99
    previous_end = 0.0
    for sentence in voice["sentences"]:
        start, end = (round(sentence[name] * rate_hz) for name in ("start_seconds", "end_seconds"))
        # Pauses are silent, sentences are not.
        assert np.abs(samples[round(previous_end * rate_hz) : start]).max() < 0.01
        assert np.sqrt(np.square(samples[start:end]).mean()) > 0.02
        previous_end = sentence["end_seconds"]


@pytest.mark.parametrize("voice", VOICES, ids=lambda voice: voice["name"])
def test_a_recording_has_its_transcript_licence_and_origin(voice: dict):
    transcript = (FOLDER / voice["transcript"]).read_text(encoding="utf-8").splitlines()
    assert transcript == [sentence["text"] for sentence in voice["sentences"]]
    assert ALPHABET.issuperset("".join(transcript))
    assert "BSD" in voice["licence"]
    assert voice["made_by"]["engine"].startswith("flite")


def test_one_voice_is_unseen_and_no_sentence_is_used_for_evaluation():
    assert [voice["made_by"]["voice"] for voice in VOICES] == ["slt", "awb", HELD_OUT_VOICE]
    evaluation = (PROJECT_FOLDER / "assets" / "evaluation" / "sentences.txt").read_text(encoding="utf-8")
    assert not {text for sample in SAMPLES for text in sample.sentences} & set(evaluation.splitlines())


@pytest.mark.needs_program("flite", "espeak-ng")
def test_the_stage_makes_the_files_that_are_committed(tmp_path: Path):
    make_sample_voices(tmp_path, report=lambda line: None)
    made = json.loads((tmp_path / INDEX).read_text(encoding="utf-8"))["voices"]
    if [voice["made_by"]["engine"] for voice in made] != [voice["made_by"]["engine"] for voice in VOICES]:
        pytest.skip(f"another flite: {engines.versions()}")
    assert made == VOICES
    for path in FOLDER.glob("*.flac"):
        expected, _ = soundfile.read(path, dtype="int16")
        found, _ = soundfile.read(tmp_path / path.name, dtype="int16")
        assert len(found) == len(expected)
        # Resampling may round otherwise on another processor.
        assert np.abs(found.astype(int) - expected).max() <= 4
