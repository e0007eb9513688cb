"""What a comparison says: nothing that gives a blind side away, and after the vote what the votes mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backend.comparisons.listening_test import ListeningTest
from backend.comparisons.make_comparison import ComparisonOrder, ComparisonProgress
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
    return render_compare.draw(
        {
            letter: HeardTake(path=Path(f"/t/{letter}.wav"), samples=samples, sample_rate=24_000, moments=(0.0, 0.1))
            for letter in letters
        }
    )


def listening(num_sentences=3):
    return ListeningTest([ComparisonOrder(sides=(TUNED, ZERO), text="Hello.") for _ in range(num_sentences)])


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
    html = render_compare.pair_html(listening(), comparison(TUNED, ZERO), heard("A", "B"))
    assert html.count("data-play=") == 2
    assert all(word not in html for word in ("tuned", "zero", "Likeness"))
    assert "Names come at the end" in html
    assert "same loudness" in html


def test_after_the_votes_names_and_choice_are_shown():
    made = comparison(TUNED, ZERO).model_copy(update={"verdict": "B"})
    html = render_compare.over_html([made], {made.id: heard("A", "B")}, [counted(0, 1)], (TUNED, ZERO))
    assert f"Your vote: {ZERO.label}" in html
    assert html.count("data-play=") == 2
    assert "0.50 by the speaker verifier: no more like the voice than a stranger" in html
    assert f'<h2 tabindex="-1" data-answer>{ZERO.label} is ahead.</h2>' in html
    # The style sheet gives no room to a place that has this in it.
    assert "says-nothing" not in html


def test_a_lost_file_is_left_out():
    html = render_compare.pair_html(listening(), comparison(TUNED, ZERO), heard("A"))
    assert html.count("data-play=") == 1


def test_nothing_foreign_becomes_markup():
    made = comparison(side(HOSTILE), ZERO).model_copy(update={"text": HOSTILE, "verdict": "A"})
    html = render_compare.pair_html(listening(), made, heard("A", "B"))
    html += render_compare.over_html([made], {made.id: heard("A", "B")}, [counted(1, 2)], (side(HOSTILE), ZERO))
    assert "<img src=x" not in html


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (0, 0, "No vote preferred one"),
        (2, 1, "won 67% of 3 votes"),
        (2, 1, "can still be luck"),
        (30, 2, "more than luck"),
    ],
)
def test_votes_are_put_in_words(first, second, words):
    made = comparison(TUNED, ZERO).model_copy(update={"verdict": "same"})
    assert words in render_compare.over_html([made], {}, [counted(first, second)], (TUNED, ZERO))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [(1, 1, "The votes are even."), (2, 1, f"{TUNED.label} is ahead."), (1, 30, f"{ZERO.label} wins.")],
)
def test_the_result_is_one_sentence(first, second, words):
    assert render_compare.headline([counted(first, second)], SIDES) == words


def test_votes_of_earlier_tests_are_told_apart():
    made = comparison(TUNED, ZERO).model_copy(update={"verdict": "A"})
    html = render_compare.over_html([made], {}, [counted(4, 1)], (TUNED, ZERO))
    assert "5 of them are from earlier." in html


def test_where_zero_shot_wins_it_is_said_with_what_would_help():
    advice = render_compare.advice_html([counted(1, 12)], SIDES)
    assert "Zero-shot wins over the fine-tune." in advice
    for line in ("More minutes of clean recordings", "right word for word", "An earlier checkpoint", "One room"):
        assert line in advice
    assert "more votes would tell" in render_compare.advice_html([counted(1, 2)], SIDES)
    assert render_compare.advice_html([counted(12, 1)], SIDES) == render.NOTHING
    assert render_compare.advice_html([counted(1, 1)], SIDES) == render.NOTHING


def test_progress_never_names_a_side():
    for doing in ("loading", "speaking", "measuring"):
        progress = ComparisonProgress(number=2, num_sides=2, doing=doing, seconds_spoken=1.25)
        line = render_compare.progress_in_words(progress)
        assert "tuned" not in line
        assert "2 of 2" in line


def test_the_dots_say_where_one_is():
    test = listening()
    made = comparison(TUNED, ZERO)
    test.count(made.model_copy(update={"verdict": "A"}))
    assert '<i class=""></i>' in render_compare.waiting_html(test)
