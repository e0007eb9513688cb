"""Which parts of a take have probably lost words, and how a stopped take is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.takes.parts import HeardInPart, Pace, TakePart, said_so_far
from training.model.generation.finish_reason import FinishReason
from training.model.prompt.length import expected_seconds

TEXT = "The kettle was whistling before anyone had found the cups, and nobody minded."


def part(seconds, pace=None, **changes):
    known = {"text": TEXT, "seed": 1, "finish_reason": FinishReason.EOS, "start_seconds": 0.0, "seconds": seconds}
    return TakePart(**known | {"expected_seconds": (pace or Pace("english")).expected_seconds(TEXT)} | changes)


def test_a_part_that_is_too_short_for_its_text_is_doubted_and_an_ordinary_one_is_not():
    ordinary = expected_seconds(TEXT)
    # The slowest and the fastest sentence of the sample voices.
    assert [part(share * ordinary).doubt for share in (0.96, 0.67)] == [None, None]
    assert part(0.45 * ordinary).doubt == "short"


def test_a_word_or_two_are_never_too_short():
    assert part(0.05, text="Hi.", expected_seconds=0.3).doubt is None


@pytest.mark.parametrize(("lost_share", "doubt"), [(0.5, "lost"), (0.1, None), (-0.2, None)])
def test_who_listened_is_believed_before_the_clock(lost_share, doubt):
    heard = HeardInPart(text="x", listener="x", lost_share=lost_share)
    assert part(0.4 * expected_seconds(TEXT), heard=heard).doubt == doubt


def test_a_stopped_part_is_not_blamed_and_a_runaway_is():
    assert part(0.1, finish_reason=FinishReason.CANCELLED).doubt is None
    assert part(60.0, finish_reason=FinishReason.LENGTH).doubt == "rambling"


def test_the_pace_is_the_voices_own():
    slow = Pace("english", (TEXT, 1.2 * expected_seconds(TEXT)))
    assert slow.ratio == pytest.approx(1.2)
    assert part(0.8 * expected_seconds(TEXT), slow).doubt == "short"
    assert part(0.8 * expected_seconds(TEXT)).doubt is None


@given(st.lists(st.floats(0.0, 60.0), max_size=9), st.floats(0.0, 300.0))
def test_an_implausible_pace_is_not_learned(seconds, reference):
    pace = Pace("auto", ("A whole other text than that of the recording, and a long one at that.", reference))
    for one in seconds:
        pace.learn(TEXT, one)
    assert 0.7 <= pace.ratio <= 1.3


@given(st.text(alphabet="ab ", max_size=30), st.floats(-1, 2))
def test_a_text_is_cut_after_whole_words(text, share):
    cut = said_so_far(text, share)
    assert cut == text or text.startswith(cut.removesuffix("…").removesuffix(" "))
