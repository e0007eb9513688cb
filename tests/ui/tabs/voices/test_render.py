"""Lines for programs: whatever a voice is called, shell and Python read the name that was meant."""

from __future__ import annotations

import ast
import json
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.comparisons.contenders import Contender
from backend.comparisons.preference import Standing
from backend.voices.consent import Consent
from backend.voices.voice import Voice
from ui.tabs.voices import render as render_library

ADDRESS = "http://127.0.0.1:8000"


def voice(**changes):
    fields = {
        "id": "1" * 32,
        "name": "Ann",
        "kind": "zero-shot",
        "model": "mini",
        "consent": Consent.give("Ann", "own-voice"),
        "created_at": datetime(2026, 1, 2, tzinfo=UTC),
        "folder": Path("/nowhere"),
    }
    return Voice.model_validate(fields | changes)


@pytest.mark.parametrize("name", ["Ann", "D'Arcy", "Bj\u00f6rk & co", "O'Neil's (2)"])
def test_the_lines_name_the_voice(name):
    words = shlex.split(render_library.curl_line(voice(name=name), ADDRESS).replace("\\\n", ""))
    assert words[:2] == ["curl", f"{ADDRESS}/v1/audio/speech"]
    assert json.loads(words[words.index("-d") + 1])["voice"] == name
    program = ast.parse(render_library.python_lines(voice(name=name), ADDRESS, "mini"))
    strings = [node.value for node in ast.walk(program) if isinstance(node, ast.Constant)]
    assert name in strings
    assert "mini" in strings


def test_a_card_tells_kind_consent_origin_and_votes():
    one = voice(transcript="Hi.", provenance={"recordings": ["a.wav", "b.wav"]})
    in_context, by_sound = (Contender.of_voice(one, way) for way in ("in-context", "x-vector"))
    votes = {
        one.id: (
            (in_context, Standing(key="", num_won=2, num_decided=5)),
            (by_sound, Standing(key="", num_won=9, num_decided=9)),
        )
    }
    card = render_library.voice_list([one], {one.id: Path("/tmp/x/reference.wav")}, votes)
    for words in (
        "Zero-shot, in context, with mini",
        "Made on 2026-01-02. Zero-shot, in context: won 2 of 5, undecided.",
        "Zero-shot, from the sound alone: won 9 of 9, clearly preferred.",
        "Consent by Ann on",
        "Recordings: a.wav, b.wav.",
        'data-play="gradio_api/file=/tmp/x/reference.wav"',
    ):
        assert words in card


def test_an_imported_voice_says_from_which_file():
    told = render_library.provenance_in_words(voice(provenance={"imported": {"file": "ann.encore-voice"}}))
    assert told == "Imported from ann.encore-voice."


def test_an_empty_library_says_what_to_do():
    assert "Speak tab" in render_library.voice_list([], {}, {})
