"""Phrases to read aloud: which words were heard, however a small transcriber spells them."""

from __future__ import annotations

import pytest

from backend.voices.consent_phrase import (
    COLUMNS,
    STATEMENT,
    draw_phrase,
    error_rate,
    num_misheard_words,
    statement_error_rate,
)
from backend.voices.spoken_consent import ProofLimits, says_phrase

PHRASE = f"{STATEMENT} The tall gardener painted two hundred golden envelopes near the river."


def test_phrases_hold_the_statement_and_differ():
    phrases = {draw_phrase() for _ in range(50)}
    assert all(phrase.startswith(STATEMENT) for phrase in phrases)
    assert len(phrases) > 45


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        ("i agree THAT my voice, is cloned", 0.0),
        ("I a greet that my voise is cloned", 2 / 25),
        ("", 1.0),
    ],
)
def test_errors_are_counted_in_letters(heard, expected):
    assert error_rate(STATEMENT, heard) == pytest.approx(expected)


# As the embedded transcriber writes down voices that it knows and voices that it does not.
@pytest.mark.parametrize(
    "heard",
    [
        PHRASE,
        "I a greet that my voice is clon, the tall gardener painted to hundred golden envelope snear the river.",
        "I'd great that my voices clone, the tall gardner panted too hundred goldin envelops near the rivver",
        "Iregry that my vices clowned. The tall guardener painted two hundred gold an vellopes neare the river.",
    ],
)
def test_misspelt_is_not_misheard(heard):
    assert num_misheard_words(PHRASE, heard) <= 1
    assert says_phrase(PHRASE, heard, ProofLimits())


@pytest.mark.parametrize(
    "heard",
    [
        "",
        "Good evening, this is the news.",
        STATEMENT,
        PHRASE.removeprefix(STATEMENT),
        f"{STATEMENT} The busy baker painted two hundred golden ladders near the river.",
        PHRASE.replace("agree that", "never said").replace("is cloned", "was heard"),
        f"{PHRASE} And this, by the way, is what else I said on that evening, and it went on for a good while.",
    ],
)
def test_what_is_not_the_phrase_is_none(heard):
    assert not says_phrase(PHRASE, heard, ProofLimits())


def test_other_drawn_phrases_are_not_taken_for_it():
    phrases = {draw_phrase() for _ in range(30)}
    for phrase in phrases:
        assert num_misheard_words(phrase, phrase) == 0
        assert says_phrase(phrase, phrase.upper(), ProofLimits())
    others = [(one, other) for one in phrases for other in phrases if num_in_common(one, other) < len(COLUMNS) - 1]
    assert not [pair for pair in others if says_phrase(*pair, ProofLimits())]


def num_in_common(one: str, other: str) -> int:
    return sum(any(word in one and word in other for word in column) for column in COLUMNS)


def test_a_phrase_of_ones_own_is_no_phrase():
    assert num_misheard_words("Hello there.", "Hello there.") == len(COLUMNS)
    assert not says_phrase("Hello there.", "Hello there.", ProofLimits())


def test_the_agreement_comes_first():
    assert statement_error_rate(PHRASE) == 0.0
    assert statement_error_rate("The tall gardener painted two hundred golden envelopes.") > 0.6
