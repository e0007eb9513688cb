"""Who sounds like whom, from what was measured on each take."""

from __future__ import annotations

from backend.evaluation.likeness_table import LikenessTable, who_sounds_like_whom
from backend.evaluation.scores import EvaluatedTake
from tests.backend.evaluation.test_scores import take


def said(speaker: str, *likeness: float) -> EvaluatedTake:
    """A take that is so much like Ann, Ben and Carl."""
    return take(speaker=speaker, likeness=dict(zip(("Ann", "Ben", "Carl"), likeness, strict=True)), verifier="GE2E")


def table(*takes: EvaluatedTake) -> LikenessTable:
    found = who_sounds_like_whom(takes)
    assert found is not None
    return found


CLEAR = (said("Ann", 0.8, 0.2, 0.1), said("Ben", 0.3, 0.7, 0.2), said("Carl", 0.1, 0.2, 0.9))


def test_a_row_for_each_speaker_has_the_mean_similarity_to_each() -> None:
    found = table(*CLEAR, said("Ann", 0.6, 0.4, 0.3))
    assert found.speakers == ("Ann", "Ben", "Carl")
    assert [round(value, 6) for value in found.rows[0].similarities] == [0.7, 0.3, 0.2]
    assert found.rows[0].counts == (2, 0, 0)
    assert (found.num_takes, found.num_taken_for_another, found.judge) == (4, 0, "GE2E")
    assert found.in_words() == "All 4 takes resemble their own speaker most."


def test_the_most_frequent_mistake_is_named() -> None:
    found = table(*CLEAR, *[said("Ben", 0.6, 0.5, 0.1)] * 2, said("Carl", 0.1, 0.9, 0.2))
    assert found.rows[1].counts == (2, 1, 0)
    assert found.in_words() == (
        "3 of 6 takes resemble another speaker more than their own, most often Ben sounds like Ann (2)."
    )
    head, ann, ben, carl = found.lines()
    assert head.split() == ["takes", "of", "Ann", "Ben", "Carl"]
    assert ben.split() == ["Ben", "0.50", "(2)", "0.57", "(1)", "0.13", "(0)"]
    assert len({len(line) for line in (head, ann, ben, carl)}) == 1


def test_there_is_none_for_one_speaker_or_where_nothing_was_heard() -> None:
    assert who_sounds_like_whom([take()]) is None
    assert who_sounds_like_whom([]) is None
    assert who_sounds_like_whom([*CLEAR[:2], take(speaker="Carl")]) is None
