"""A listening test: how far ahead of the votes it is made, and when it is over."""

from __future__ import annotations

import threading

import pytest

from backend.comparisons.errors import ComparisonError
from backend.comparisons.listening_test import NUM_AHEAD, ListeningTest
from backend.comparisons.make_comparison import ComparisonOrder, FinishedComparison
from backend.errors import PromptError
from tests.backend.comparisons.examples import comparison, side

TUNED, ZERO = side("tuned", "fine-tuned"), side("zero")
PATIENCE_SECONDS = 30.0


def listening(num_sentences):
    return ListeningTest([ComparisonOrder(sides=(TUNED, ZERO), text=f"Hello {n}.") for n in range(num_sentences)])


def make(order):
    return [FinishedComparison(comparison=comparison(TUNED, ZERO).model_copy(update={"text": order.text}), paths={})]


def measure(made):
    scored = [take.model_copy(update={"seconds": 9.0}) for take in made.comparison.takes]
    return made.comparison.model_copy(update={"takes": tuple(scored)})


def vote(test, verdict="A"):
    test.count(test.current.comparison.model_copy(update={"verdict": verdict}))


@pytest.fixture
def started():
    """A test of ten that is being made in a thread, with a way to wait for its next steps."""
    test, made = listening(10), threading.Semaphore(0)

    def compare(order):
        made.release()
        return make(order)

    thread = threading.Thread(target=test.make, args=(compare, measure, lambda: False))
    thread.start()
    yield test, made
    test.end()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def test_it_is_made_a_few_ahead_of_the_votes(started):
    test, made = started
    for _ in range(1 + NUM_AHEAD):
        assert made.acquire(timeout=PATIENCE_SECONDS)
    assert not made.acquire(timeout=0.5)
    vote(test)
    assert made.acquire(timeout=PATIENCE_SECONDS)
    assert not made.acquire(timeout=0.5)


def test_sentences_come_in_order_and_the_last_vote_ends_it():
    test = listening(3)
    test.make(make, measure, lambda: False)
    for number in range(3):
        assert test.current.comparison.text == f"Hello {number}."
        assert not test.is_over
        vote(test)
    assert test.is_over
    assert test.current is None
    assert [one.text for one in test.voted] == ["Hello 0.", "Hello 1.", "Hello 2."]


def test_what_was_cancelled_goes_on_where_it_was():
    """Who loads the page anew ends the making, and begins it again."""
    test, asked = listening(3), []

    def compare(order):
        asked.append(order.text)
        return make(order)

    test.make(compare, measure, lambda: len(asked) == 1)
    vote(test)
    test.make(compare, measure, lambda: False)
    assert asked == [one.comparison.text for one in test.made] == ["Hello 0.", "Hello 1.", "Hello 2."]
    assert len(test.voted) == 1


def test_who_goes_on_waits_for_the_one_before_unless_cancelled():
    test, begun, may_end = listening(1), threading.Event(), threading.Event()

    def compare(order):
        begun.set()
        assert may_end.wait(PATIENCE_SECONDS)
        return make(order)

    before = threading.Thread(target=test.make, args=(compare, measure, lambda: False))
    before.start()
    assert begun.wait(PATIENCE_SECONDS)
    test.make(make, measure, lambda: True)
    assert test.made == ()
    may_end.set()
    test.make(make, measure, lambda: False)
    before.join(PATIENCE_SECONDS)
    assert len(test.made) == 1


def test_who_stops_early_keeps_the_votes():
    test = listening(3)
    test.make(make, measure, lambda: False)
    vote(test, "same")
    test.end()
    assert test.is_over
    assert test.current is None
    assert len(test.voted) == 1


def test_what_was_cancelled_is_no_comparison():
    test = listening(2)
    test.make(lambda _: [], measure, lambda: False)
    assert test.made == ()


def test_an_impossible_comparison_is_refused():
    with pytest.raises(ComparisonError, match="at least one sentence"):
        ListeningTest([])
    with pytest.raises(PromptError):
        ListeningTest([ComparisonOrder(sides=(TUNED, ZERO), text=" ")])


def test_what_is_measured_after_its_vote_keeps_the_vote():
    test = listening(1)

    def compare(order):
        yield from make(order)
        vote(test)

    test.make(compare, measure, lambda: False)
    (voted,) = test.voted
    assert voted.verdict == "A"
    assert voted.takes[0].seconds == 9.0
