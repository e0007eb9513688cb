"""Comparisons in the store: a vote stands, and belongs to a side that was heard."""

from __future__ import annotations

import pytest

from backend.comparisons.errors import ComparisonError
from backend.comparisons.vote_table import VoteTable
from backend.store.database import Database
from tests.backend.comparisons.examples import comparison, side

ANN, BEN, CAT = side("ann"), side("ben", "in-context"), side("cat", "fine-tuned")


@pytest.fixture
def rows(tmp_path):
    return VoteTable(Database(tmp_path))


def test_what_was_compared_is_read_back(rows):
    made = comparison(ANN, BEN, CAT)
    rows.add(made)
    assert rows.get(made.id) == made
    assert rows.list_voted() == ()


def test_who_is_who_is_told_after_a_blind_vote_only(rows):
    blind, open_ = comparison(ANN, BEN), comparison(ANN, BEN, is_blind=False)
    rows.add(blind)
    assert open_.is_revealed
    assert not rows.get(blind.id).is_revealed
    voted = rows.vote(blind.id, "B")
    assert voted.is_revealed
    assert voted.winner.side == BEN
    assert rows.list_voted() == (voted,)


@pytest.mark.parametrize("verdict", ["same", "bad"])
def test_without_a_preference_there_is_no_winner(rows, verdict):
    made = comparison(ANN, BEN)
    rows.add(made)
    assert rows.vote(made.id, verdict).winner is None


def test_a_vote_stands(rows):
    made = comparison(ANN, BEN)
    rows.add(made)
    rows.vote(made.id, "A")
    with pytest.raises(ComparisonError, match="already voted"):
        rows.vote(made.id, "B")
    assert rows.get(made.id).verdict == "A"


def test_a_side_that_was_not_heard_cannot_win(rows):
    made = comparison(ANN, BEN)
    rows.add(made)
    with pytest.raises(ComparisonError, match="has no side C"):
        rows.vote(made.id, "C")
    with pytest.raises(ComparisonError, match="no longer exists"):
        rows.vote("nothing", "A")


def test_tallies_are_of_every_pair(rows):
    made = comparison(ANN, BEN, CAT)
    rows.add(made)
    rows.vote(made.id, "C")
    tallies = rows.tallies([ANN.key, BEN.key, CAT.key])
    assert [(one.first, one.second) for one in tallies] == [
        (ANN.key, BEN.key),
        (ANN.key, CAT.key),
        (BEN.key, CAT.key),
    ]
    assert [one.second_wins for one in tallies] == [0, 1, 1]
