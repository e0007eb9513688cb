"""What a dataset is made of is kept where a build finds it, and is given a free name."""

from __future__ import annotations

import pytest

from backend.dataset.sources.material import Material, proposed_name
from backend.voices.samples import get_sample


def test_recordings_of_one_name_and_their_texts_are_kept_apart(tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.wav").write_text(folder)
    text = tmp_path / "a.txt"
    text.write_text("Hello.")
    material = Material(recordings=(tmp_path / "x" / "a.wav", tmp_path / "y" / "a.wav"), transcripts=(text,))
    recordings, texts = material.keep(tmp_path / "kept")
    assert [path.read_text() for path in recordings] == ["x", "y"]
    assert [path.read_text() for path in texts] == ["Hello."]


def test_a_transcript_stands_beside_its_recording(tmp_path):
    recording = tmp_path / "a.wav"
    recording.write_text("sound")
    (kept,), (text,) = Material(recordings=(recording,), transcript="Hello.").keep(tmp_path / "kept")
    assert text == kept.with_suffix(".txt")
    assert text.read_text() == "Hello.\n"


def test_a_sample_becomes_its_sentences(tmp_path):
    recordings, _ = Material(sample="iris").keep(tmp_path)
    texts = [path.with_suffix(".txt").read_text().strip() for path in recordings]
    assert texts == [sentence.text for sentence in get_sample("iris").sentences]


@pytest.mark.parametrize(
    ("voice", "taken", "name"),
    [("Ann's voice.wav", [], "Ann-s-voice"), ("ann", ["ann", "ann-2"], "ann-3"), ("", [], "voice"), ("…", [], "voice")],
)
def test_a_free_name_is_proposed(voice, taken, name):
    assert proposed_name(voice, taken) == name
