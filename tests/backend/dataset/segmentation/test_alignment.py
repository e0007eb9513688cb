"""A text that came along gets the times of what was heard, and what was not heard is marked."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from backend.dataset.segmentation.alignment import align_text
from backend.transcription.transcript import Word, join_words


def heard(text: str, *, step: float = 0.5) -> list[Word]:
    return [
        Word(text=word, start_seconds=step * index, end_seconds=step * (index + 1), probability=0.9)
        for index, word in enumerate(text.split())
    ]


def test_spelling_and_punctuation_are_those_of_the_text() -> None:
    found = align_text("“Hello,” said Ms. O'Neill — twice!", heard("hello said ms oneill twice"))
    assert join_words(found.words) == "“Hello,” said Ms. O'Neill — twice!"
    placed = [word for word in found.words if word.probability > 0]
    assert [(word.start_seconds, word.end_seconds) for word in placed] == [(0.5 * i, 0.5 * (i + 1)) for i in range(5)]
    assert found.agreement > 0.8


def test_a_word_that_was_misheard_keeps_its_time() -> None:
    found = align_text("The weather is nice", heard("the whether is nice"))
    assert (found.words[1].text, found.words[1].start_seconds, found.words[1].end_seconds) == ("weather", 0.5, 1.0)
    assert 0.0 < found.words[1].probability < 0.9
    assert found.agreement == 0.75


def test_what_was_not_heard_has_no_probability_and_a_place_between() -> None:
    spoken = [*heard("one two"), Word(text="five", start_seconds=3.0, end_seconds=3.5, probability=0.9)]
    found = align_text("one two three four five", spoken)
    assert [word.probability for word in found.words] == [0.9, 0.9, 0.0, 0.0, 0.9]
    assert 1.0 <= found.words[2].start_seconds < found.words[3].start_seconds < found.words[3].end_seconds <= 3.0


def test_what_is_heard_but_not_written_counts_against_the_text() -> None:
    found = align_text("one two", heard("well one two you know"))
    assert [word.start_seconds for word in found.words] == [0.5, 1.0]
    assert found.agreement == 0.4


def test_another_text_does_not_agree() -> None:
    assert align_text("This is something else entirely", heard("completely different words")).agreement == 0.0


def test_nothing_on_either_side() -> None:
    assert align_text("", []).agreement == 1.0
    assert align_text("", heard("one")).words == ()
    found = align_text("one two", [])
    assert [word.probability for word in found.words] == [0.0, 0.0]
    assert found.agreement == 0.0


def test_scripts_without_spaces() -> None:
    spoken = [
        Word(text=sign, start_seconds=float(i), end_seconds=i + 1.0, has_space_before=False)
        for i, sign in enumerate("今天天气很好")
    ]
    found = align_text("今天天气很好。", spoken)
    assert join_words(found.words) == "今天天气很好。"
    assert [word.start_seconds for word in found.words] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert found.agreement == 1.0


def test_the_words_of_two_hours_are_aligned() -> None:
    text = " ".join(f"word{index % 900} the {index}" for index in range(6_000))
    spoken = heard(text)
    del spoken[1_000:1_050]
    found = align_text(text, spoken)
    assert sum(word.probability == 0.0 for word in found.words) == 50


texts = st.lists(st.sampled_from("a b c d, E. f-g — 1 42 你好".split()), max_size=25).map(" ".join)


@given(text=texts, spoken=texts)
def test_every_word_of_the_text_gets_a_time_in_order(text: str, spoken: str) -> None:
    found = align_text(text, heard(spoken))
    assert join_words(found.words) == text
    assert all(word.start_seconds <= word.end_seconds for word in found.words)
    assert all(a.start_seconds <= b.start_seconds for a, b in itertools.pairwise(found.words))
    assert 0.0 <= found.agreement <= 1.0


def said(text: str, start_seconds: float, seconds_per_letter: float = 0.07) -> list[Word]:
    """Words at an even pace."""
    words = []
    for word in text.split():
        end_seconds = start_seconds + seconds_per_letter * len(word)
        words.append(Word(text=word, start_seconds=start_seconds, end_seconds=end_seconds, probability=0.9))
        start_seconds = end_seconds
    return words


def test_the_end_of_a_sentence_stays_in_front_of_the_pause() -> None:
    """Word by word, "the" of the next sentence would do for the one that was not heard."""
    before, after = said("a bottle on the waited", 0.0), said("the suster fond it", 3.0)
    found = align_text("A bottle on the way to the market. The sister found it.", before + after)
    assert [word.text for word in found.words if word.start_seconds >= 3.0] == ["The", "sister", "found", "it."]


def test_words_that_were_run_together_share_their_time() -> None:
    found = align_text(
        "The engineer described a leather map without a word.",
        said("the engineer diskribbullellethermap without a word", 1.0),
    )
    assert all(word.probability > 0 for word in found.words)
    assert found.words[-3].start_seconds > found.words[3].end_seconds > found.words[3].start_seconds
    durations = [word.end_seconds - word.start_seconds for word in found.words[2:6]]
    assert min(durations) > 0.03


def test_words_that_were_left_out_get_no_time_from_their_neighbours() -> None:
    found = align_text("The engineer described a leather map to us.", said("the engineer described map to us", 1.0))
    assert [word.text for word in found.words if word.probability == 0] == ["a", "leather"]
