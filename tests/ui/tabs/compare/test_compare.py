"""Which voices are proposed for comparison."""

from __future__ import annotations

import pytest

from backend.comparisons.contenders import Contender
from ui.tabs.compare.compare import choose_sides, standard_sentences


def side(id_: str, way: str, source: str = "voice") -> Contender:
    return Contender(source=source, id=id_, way=way, label=f"{id_} {way}")


TUNED = [side("new", way) for way in ("fine-tuned", "fine-tuned-in-context", "in-context", "x-vector")]
OLD = [side("old", way) for way in ("in-context", "x-vector")]


@pytest.mark.parametrize(
    ("sides", "proposed"),
    [
        ([*TUNED, *OLD], [TUNED[0], TUNED[2]]),
        ([*OLD, *TUNED], [OLD[0], OLD[1]]),
        ([TUNED[0], *OLD], [TUNED[0], OLD[0]]),
        ([TUNED[0]], [TUNED[0], None]),
        ([], [None, None]),
    ],
)
def test_a_fine_tune_is_proposed_against_the_same_voice_without_it(sides, proposed):
    keys = [one.key if one is not None else None for one in proposed]
    assert choose_sides(sides, (None, None, None)) == [*keys, None]


def test_what_is_chosen_stays_while_it_is_there():
    sides = [*TUNED, *OLD]
    assert choose_sides(sides, (OLD[1].key, None, OLD[0].key)) == [OLD[1].key, TUNED[0].key, OLD[0].key]
    assert choose_sides(OLD, (TUNED[0].key, OLD[0].key, None)) == [OLD[1].key, OLD[0].key, None]


def test_a_voice_that_was_asked_for_comes_first():
    assert choose_sides([*TUNED, *OLD], (None, None, None), "old") == [OLD[0].key, OLD[1].key, None]
    assert choose_sides([*OLD, *TUNED], (None, None, None), "new")[:2] == [TUNED[0].key, TUNED[2].key]


def test_ten_more_sentences_are_others():
    first = standard_sentences().splitlines()
    more = standard_sentences(after="\n".join(first)).splitlines()
    assert len(first) == len(more) == 10
    assert not set(first) & set(more)
    assert standard_sentences(after="A sentence of my own.").splitlines() == first
