"""The sides of a comparison are stored in English, and shown in the language of the page."""

from __future__ import annotations

import pytest

from backend.comparisons.contenders import WAYS, Contender, list_sides
from backend.voices.samples import list_samples
from ui.html.sides import WAY_WORDS, side_name
from ui.words.words import say, spoken_to


def side(source, way, label):
    return Contender(source=source, id="1", way=way, label=label)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_speak_is_called_the_same_in_english(way):
    assert say(WAY_WORDS[way]) == WAYS[way]
    one = side("voice", way, f"Ann: the first: {WAYS[way]}")
    assert side_name(one) == one.label


def test_sides_are_named_in_the_language_of_the_page():
    sample = next(one for one in list_sides([], [], list_samples()) if one.way == "x-vector")
    assert side_name(sample) == sample.label
    run = side("run", "fine-tuned", "Ann, run of 2026-01-02 12:00: fine-tuned, step 40")
    assert side_name(run) == run.label
    with spoken_to("de"):
        assert side_name(sample) == f"Beispiel {sample.id.title()}: zero-shot, nur nach Klang"
        assert side_name(run) == "Ann, Anpassung vom 2026-01-02 12:00: angepasst, Schritt 40"
        assert side_name(side("voice", "fine-tuned", "Old name")) == "Old name"
