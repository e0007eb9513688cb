"""What a comparison says: nothing that gives a blind side away, and after the vote what the votes mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backend.comparisons.make_comparison import ComparisonProgress
from backend.comparisons.preference import Tally
from tests.backend.comparisons.examples import comparison, side
from ui.html import messages as render
from ui.tabs.compare import render as render_compare
from ui.tabs.compare.render import HeardTake

HOSTILE = '<img src=x onerror="alert(1)">'
TUNED, ZERO = side("tuned", "fine-tuned"), side("zero", "x-vector")
SIDES = {TUNED.key: TUNED, ZERO.key: ZERO}


def heard(*letters):
    samples = np.zeros(2400, np.float32)
    return {letter: HeardTake(path=Path(f"/t/{letter}.wav"), samples=samples, sample_rate=24_000) for letter in letters}


def counted(first_wins, second_wins):
    return Tally(
        first=TUNED.key,
        second=ZERO.key,
        first_wins=first_wins,
        second_wins=second_wins,
        num_same=1,
        num_bad=0,
        num_blind=first_wins,
    )


def test_a_blind_comparison_gives_nothing_away():
    html = render_compare.comparison_html(comparison(TUNED, ZERO), heard("A", "B"))
    assert html.count("data-play=") == 2
    assert all(word not in html for word in ("tuned", "zero", "Likeness"))
    assert "after your vote" in html


def test_after_the_vote_everybody_is_named_and_the_choice_is_marked():
    made = comparison(TUNED, ZERO).model_copy(update={"verdict": "B"})
    html = render_compare.comparison_html(made, heard("A", "B"))
    assert html.index(TUNED.label) < html.index("Take B (your choice)") < html.index(ZERO.label)
    assert "0.50 by the speaker verifier: no more like the voice than a stranger" in html
    assert "after your vote" not in html
    assert ZERO.label in render_compare.vote_line(made)


def test_loudness_is_said_and_a_lost_file_is_left_out():
    html = render_compare.comparison_html(comparison(TUNED, ZERO), heard("A"))
    assert "brought to the same loudness" in html
    assert html.count("data-play=") == 1


def test_nothing_foreign_becomes_markup():
    made = comparison(side(HOSTILE), ZERO).model_copy(update={"text": HOSTILE, "verdict": "A"})
    html = render_compare.comparison_html(made, heard("A", "B")) + render_compare.vote_line(made)
    html += render_compare.tally_html([counted(1, 2)], {TUNED.key: side(HOSTILE)})
    assert "<img src=x" not in html


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (0, 0, "No vote preferred one"),
        (2, 1, "preferred in 67% of 3 decided votes"),
        (2, 1, "can still be luck"),
        (30, 2, "more than luck"),
    ],
)
def test_votes_are_put_in_words(first, second, words):
    assert words in render_compare.tally_html([counted(first, second)], SIDES)


def test_where_zero_shot_wins_it_is_said_with_what_would_help():
    advice = render_compare.advice_html([counted(1, 12)], SIDES)
    assert "Zero-shot wins over the fine-tune." in advice
    assert all(line.split(":")[0] in advice for line in render_compare.WHAT_HELPS)
    assert "more votes would tell" in render_compare.advice_html([counted(1, 2)], SIDES)
    assert render_compare.advice_html([counted(12, 1)], SIDES) == render.NOTHING
    assert render_compare.advice_html([counted(1, 1)], SIDES) == render.NOTHING


def test_progress_never_names_a_side():
    for doing in ("loading", "speaking", "measuring"):
        line = render_compare.progress_line(ComparisonProgress(number=1, num_sides=2, doing=doing, seconds_spoken=1.25))
        assert "tuned" not in line
    assert "1.2 s so far" in render_compare.progress_line(
        ComparisonProgress(number=2, num_sides=2, doing="speaking", seconds_spoken=1.25)
    )
