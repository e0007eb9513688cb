"""Votes counted, and what they allow to say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.comparisons.preference import preferred, standing, tally, wilson_interval
from tests.backend.comparisons.examples import comparison, side

ANN, BEN, CAT = side("ann"), side("ben"), side("cat")


def voted(first, second, verdict, *, third=None, is_blind=True):
    sides = [first, second] + ([third] if third else [])
    return comparison(*sides, is_blind=is_blind).model_copy(update={"verdict": verdict})


@pytest.mark.parametrize(
    ("num_wins", "num_votes", "low", "high"),
    # Published values of Wilson's interval for 95 %.
    [
        (0, 10, 0.0, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (1, 1, 0.2065, 1.0),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_the_interval_is_wilsons(num_wins, num_votes, low, high):
    assert wilson_interval(num_wins, num_votes) == pytest.approx((low, high), abs=5e-4)


@given(st.integers(1, 500).flatmap(lambda votes: st.tuples(st.integers(0, votes), st.just(votes))))
def test_the_interval_holds_the_share_and_mirrors(counts):
    num_wins, num_votes = counts
    low, high = wilson_interval(num_wins, num_votes)
    assert 0 <= low <= high <= 1
    assert low - 1e-9 <= num_wins / num_votes <= high + 1e-9
    assert wilson_interval(num_votes - num_wins, num_votes) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_without_votes_everything_is_possible():
    nothing = tally([], ANN.key, BEN.key)
    assert nothing.interval == (0.0, 1.0)
    assert nothing.share is None
    assert nothing.leader is None
    assert not nothing.is_clear


def test_sides_are_counted_whatever_letter_they_had():
    votes = [voted(ANN, BEN, "A"), voted(BEN, ANN, "B"), voted(ANN, BEN, "B", is_blind=False), voted(ANN, BEN, "same")]
    votes += [voted(BEN, ANN, "bad"), comparison(ANN, BEN), voted(ANN, CAT, "A")]
    counted = tally(votes, ANN.key, BEN.key)
    assert (counted.first_wins, counted.second_wins, counted.num_same, counted.num_bad) == (2, 1, 1, 1)
    assert counted.num_blind == 4
    assert counted.leader == ANN.key
    assert not counted.is_clear
    turned = tally(votes, BEN.key, ANN.key)
    assert (turned.first_wins, turned.second_wins) == (1, 2)


def test_the_best_of_three_wins_over_both_others():
    votes = [voted(ANN, BEN, "C", third=CAT)]
    assert tally(votes, ANN.key, CAT.key).second_wins == 1
    assert tally(votes, BEN.key, CAT.key).second_wins == 1
    assert tally(votes, ANN.key, BEN.key).num_same == 1


def test_many_votes_for_one_side_are_significant():
    assert tally([voted(ANN, BEN, "A")] * 9 + [voted(ANN, BEN, "B")], ANN.key, BEN.key).is_clear
    assert not tally([voted(ANN, BEN, "A")] * 3, ANN.key, BEN.key).is_clear


def test_votes_are_counted_for_the_way_that_was_voted_on():
    """A fine-tune that lost was called preferred, because its zero-shot way has the same voice."""
    tuned, zero_shot = side("ann", "fine-tuned"), side("ann", "in-context")
    votes = [voted(tuned, zero_shot, "A")] * 2 + [voted(tuned, zero_shot, "B")] * 3 + [voted(tuned, zero_shot, "same")]
    lost, won = standing(votes, (tuned.key,)), standing(votes, (zero_shot.key,))
    assert (lost.num_won, lost.num_decided, lost.is_clear) == (2, 5, False)
    assert (won.num_won, won.num_decided, won.is_clear) == (3, 5, False)
    assert standing(votes, (BEN.key,)).num_decided == 0


def test_a_checkpoint_and_the_voice_made_of_it_are_one_side():
    checkpoint = side("run", "fine-tuned")
    votes = [voted(checkpoint, BEN, "A"), voted(ANN, BEN, "A"), voted(ANN, BEN, "B"), voted(CAT, BEN, "A")]
    counted = standing(votes, (ANN.key, checkpoint.key))
    assert (counted.key, counted.num_won, counted.num_decided) == (ANN.key, 2, 3)


@given(st.lists(st.sampled_from(["A", "B", "C", "same", "bad"]), max_size=12), st.randoms(use_true_random=False))
def test_what_is_preferred_does_not_depend_on_the_order_of_the_votes(verdicts, random):
    sides = [ANN, BEN, CAT]
    votes = [voted(ANN, BEN, verdict, third=CAT) for verdict in verdicts]
    keys = [one.key for one in sides]

    def winner(counted):
        pairs = [(keys[0], keys[1]), (keys[0], keys[2]), (keys[1], keys[2])]
        return preferred([tally(counted, *pair) for pair in pairs], keys)

    shuffled = random.sample(votes, len(votes))
    counts = {key: verdicts.count(letter) for letter, key in zip("ABC", keys, strict=True)}
    most = [key for key, count in counts.items() if count == max(counts.values())]
    assert winner(votes) == winner(shuffled) == (most[0] if len(most) == 1 else None)
