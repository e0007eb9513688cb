"""Differences are those that can be heard."""

from __future__ import annotations

import pytest

from backend.transcription.differences import ChangeKind, compare_texts, normalise_text


def test_writing_does_not_count() -> None:
    found = compare_texts("Dr. Smith doesn't have twenty-one colours!", "doctor smith does not have 21 colors")
    assert (found.word_error_rate, found.character_error_rate) == (0.0, 0.0)
    assert [change.kind for change in found.changes] == [ChangeKind.EQUAL]


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


@pytest.mark.parametrize(
    ("expected", "heard", "rate"),
    [("", "", 0.0), ("?!", "…", 0.0), ("...", "", 0.0), ("yes", "", 1.0), ("", "yes", 1.0)],
)
def test_empty_texts(expected: str, heard: str, rate: float) -> None:
    found = compare_texts(expected, heard)
    assert (found.word_error_rate, found.character_error_rate) == (rate, rate)
    assert len(found.changes) == int(rate)


def test_languages_without_spaces_are_compared_by_sign() -> None:
    assert compare_texts("今天天气很好", "今天天汽很好", "zh").word_error_rate == pytest.approx(1 / 6)


def test_other_languages_keep_their_letters() -> None:
    assert normalise_text("Grüße, Öl!", "de") == "grüße öl"
    assert compare_texts("schön", "schon", "de").word_error_rate == 1.0
