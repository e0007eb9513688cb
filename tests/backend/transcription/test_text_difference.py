"""Texts are compared by what can be heard: spelling, digits, spacing and names that nobody taught do not count."""

from __future__ import annotations

import pytest

from backend.transcription.text_difference import (
    ChangeKind,
    compare_texts,
    letters_of,
    normalise_text,
    num_letter_errors,
    text_errors,
)


@pytest.mark.parametrize(
    ("expected", "heard"),
    [
        ("Dr. Smith doesn't have twenty-one colours!", "doctor smith does not have 21 colors"),
        ("It was 1984, on 5th Ave. at 10:30 p.m.", "it was nineteen eighty four on fifth avenue at ten thirty p m"),
        ("I paid $5.50 for 206 apples & 3.5%", "i paid five dollars and fifty cents for two hundred and six apples and "
         "three point five percent"),
        ("Press * to pause, # to enter, *now*.", "press star to pause pound to enter now"),
        ("Call 555-0123 in the 1990s", "call five five five oh one two three in the nineteen nineties"),
        ("$20 million, No. 5, the 8th", "twenty million dollars number five the eighth"),
        ("No. It's a PBX, isn't it?", "no it is a p b x is not it"),
        ("Cannot, can't, can not", "can not can not can not"),
        ("the neighbour's grey theatre was organised", "the neighbors gray theater was organized"),
        ("room 101, A4, 16kHz", "room one oh one a four sixteen k h z"),
        ("[laughs] Well, I'd re-enter \u2026", "well i would reenter"),
        ("1,000,000 people", "a million people"),
    ],
)  # fmt: skip
def test_ways_to_write_the_same(expected: str, heard: str) -> None:
    for found in (compare_texts(expected, heard), compare_texts(heard, expected)):
        assert found.character_error_rate == 0.0
        assert [change.kind for change in found.changes] == [ChangeKind.EQUAL]
        assert found.describe() == ""


@pytest.mark.parametrize(
    ("expected", "heard"),
    [("twenty-one", "twenty"), ("it was 1984", "it was nineteen eighty five"), ("No, thanks", "number thanks"),
     ("5 men", "5 women"), ("$5", "five")],
)  # fmt: skip
def test_what_sounds_different_differs(expected: str, heard: str) -> None:
    assert compare_texts(expected, heard).character_error_rate > 0
    assert compare_texts(expected, heard).describe()


def test_what_changed_is_named() -> None:
    found = compare_texts("the black cat sat down here", "the cat sat up here now")
    assert [(each.kind, each.expected, each.heard) for each in found.changes] == [
        (ChangeKind.EQUAL, "the", "the"),
        (ChangeKind.MISSING, "black", ""),
        (ChangeKind.EQUAL, "cat sat", "cat sat"),
        (ChangeKind.REPLACED, "down", "up"),
        (ChangeKind.EQUAL, "here", "here"),
        (ChangeKind.ADDED, "", "now"),
    ]
    assert found.word_error_rate == pytest.approx(3 / 6)
    assert found.describe() == (
        "the text says 'black', which was not heard; heard 'up' where the text says 'down'; "
        "heard 'now', which the text does not say"
    )


def test_a_difference_is_told_in_the_words_of_both() -> None:
    found = compare_texts("Return to the main men.", "return to the main menu")
    assert found.describe() == "heard 'menu' where the text says 'men'"
    many = compare_texts("a b c one x two y three z four", "a k c five x six y seven z eight")
    assert "more" in many.describe()


def test_names_the_listener_cannot_know_are_no_errors() -> None:
    text, heard = "to the Digium demonstration server", "to the d g m demonstration server"
    assert compare_texts(text, heard).character_error_rate > 0
    found = compare_texts(text, heard, unjudged=["digium"])
    assert (found.character_error_rate, found.word_error_rate, found.describe()) == (0.0, 0.0, "")
    # Only in their place: what is wrong elsewhere stays wrong.
    assert compare_texts(text, "to the d g m demonstration surfer", unjudged=["digium"]).word_error_rate == 1 / 4
    assert compare_texts("Digium", "anything at all", unjudged=["digium"]).character_error_rate == 0.0


@pytest.mark.parametrize(
    ("expected", "heard", "rate"),
    [("", "", 0.0), ("?!", "…", 0.0), ("...", "", 0.0), ("yes", "", 1.0), ("", "yes", 1.0)],
)
def test_empty_texts(expected: str, heard: str, rate: float) -> None:
    found = compare_texts(expected, heard)
    assert (found.word_error_rate, found.character_error_rate) == (rate, rate)
    assert len(found.changes) == int(rate)
    assert text_errors(expected, heard) == (rate, rate)


@pytest.mark.parametrize(
    ("wanted", "heard", "characters", "words"),
    [
        ("Don’t worry, Ann!", "dont worry ann", 0.0, 0.0),
        ("one two three four", "one two tree four", 1 / 15, 1 / 4),
        ("你好，世界", "你好世界", 0.0, 1.0),
        ("hello", "", 1.0, 1.0),
        ("hi", "this goes on and on and on for ever", 1.0, 1.0),
        ("...", "", 0.0, 0.0),
        ("...", "noise", 1.0, 1.0),
    ],
)
def test_errors_are_between_none_and_all(wanted: str, heard: str, characters: float, words: float) -> None:
    assert text_errors(wanted, heard) == pytest.approx((characters, words))


def test_other_languages_keep_their_letters() -> None:
    assert normalise_text("  Élan —  नमस्ते! ") == "élan नमस्ते"
    assert normalise_text("Grüße, Öl!", "de") == "grüße öl"
    assert compare_texts("schön", "schon", "de").word_error_rate == 1.0
    assert normalise_text("21 Bären", "de") == "21 bären"


def test_languages_without_spaces_are_compared_by_sign() -> None:
    assert compare_texts("今天天气很好", "今天天汽很好", "zh").word_error_rate == pytest.approx(1 / 6)


def test_only_spoken_letters_are_compared() -> None:
    assert letters_of("Set up: 2 PBXs") == "setuptwopbxs"
    assert num_letter_errors("I agree that my voice is cloned.", "I a greet that my voise is cloned") == 2


def test_a_number_too_long_to_be_a_quantity_is_read_digit_by_digit() -> None:
    assert normalise_text("9" * 40) == " ".join(["nine"] * 40)
