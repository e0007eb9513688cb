"""Lines for programs: whatever a voice is called, shell and Python read the name that was meant."""

from __future__ import annotations

import ast
import json
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest
from markupsafe import Markup

from backend.comparisons.contenders import Contender
from backend.comparisons.preference import Standing
from backend.store.trash import Deleted
from backend.voices.consent import Consent
from backend.voices.voice import Voice
from ui.tabs.voices import render as render_voices
from ui.tabs.voices.render import RunSpace, Said, ShownVoice

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
    words = shlex.split(render_voices.curl_line(voice(name=name), ADDRESS).replace("\\\n", ""))
    assert words[:2] == ["curl", f"{ADDRESS}/v1/audio/speech"]
    assert json.loads(words[words.index("-d") + 1])["voice"] == name
    program = ast.parse(render_voices.python_lines(voice(name=name), ADDRESS, "mini"))
    strings = [node.value for node in ast.walk(program) if isinstance(node, ast.Constant)]
    assert name in strings
    assert "mini" in strings


def shown(one, **changes):
    given = {"voice": one, "avatar": Markup(""), "sentence": None, "hint": "", "votes": (), "model": "mini"}
    return ShownVoice(**(given | changes))


def test_a_card_tells_kind_consent_origin_and_votes():
    one = voice(transcript="Hi.", provenance={"recordings": ["a.wav", "b.wav"]})
    in_context, by_sound = (Contender.of_voice(one, way) for way in ("in-context", "x-vector"))
    votes = (
        (in_context, Standing(key="", num_won=2, num_decided=5)),
        (by_sound, Standing(key="", num_won=9, num_decided=9)),
    )
    card = render_voices.tile_html(shown(one, sentence=Path("/tmp/x/sentence.wav"), votes=votes))
    for words in (
        "<dd>mini</dd>",
        "<dd>2026-01-02</dd>",
        "Zero-shot, in context: won 2 of 5, undecided",
        "Zero-shot, from the sound alone: won 9 of 9, clearly preferred",
        "Consent by Ann on",
        "Recordings: a.wav, b.wav.",
        'data-play="gradio_api/file=/tmp/x/sentence.wav"',
    ):
        assert words in card


def test_a_voice_without_its_sentence_says_why():
    assert "Load a model" in render_voices.tile_html(shown(voice(), hint="Load a model to hear it."))


def test_an_imported_voice_says_from_which_file():
    told = render_voices.provenance_in_words(voice(provenance={"imported": {"file": "ann.encore-voice"}}))
    assert told == "Imported from ann.encore-voice."


def test_an_empty_library_says_what_to_do():
    assert "Record one, or import" in render_voices.shelf_html([])


def test_what_was_deleted_offers_itself_where_it_was():
    others = [shown(voice(id=str(number) * 32, name=name)) for number, name in ((1, "Ann"), (2, "Ben"))]
    gone = Deleted(
        id="t", kind="voice", item_id="3" * 32, owner="", label="Cleo", deleted_at=datetime.now(UTC), num_bytes=5
    )
    html = render_voices.shelf_html(others, Said(voice_id=gone.item_id, deleted=gone, place=1))
    assert html.index("Ann") < html.index("Cleo was deleted") < html.index("Ben")


def test_space_tells_what_can_be_freed():
    run = RunSpace(id="r1", name="Ann", when="2026-01-02 10:00", num_bytes=3_000_000, is_active=False)
    active = RunSpace(id="r2", name="Ben", when="2026-01-03 10:00", num_bytes=1_000_000, is_active=True)
    html = render_voices.space_html([run, active], [])
    assert "Fine-tunes take 4 MB" in html
    assert 'data-id="r1"' in html
    assert 'data-id="r2"' not in html
    assert "still running" in html
    assert "The trash is empty." in html
