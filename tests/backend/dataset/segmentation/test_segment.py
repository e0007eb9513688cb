"""Cuts and texts agree, whatever the two witnesses claim."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from backend.audio.span import Span
from backend.dataset.segmentation.segment import LeftoverReason, Segmentation, SegmentSettings, segment_speech
from backend.transcription.transcript import Word, join_words

SETTINGS = SegmentSettings()


def span(start: float, end: float) -> Span:
    return Span(start_seconds=start, end_seconds=end)


def word(text: str, start: float, end: float) -> Word:
    return Word(text=text, start_seconds=start, end_seconds=end)


def evenly(text: str, start: float, end: float) -> list[Word]:
    """The words of `text`, of equal length, filling `start` to `end`."""
    words = text.split()
    step = (end - start) / len(words)
    return [word(part, start + step * index, start + step * (index + 1)) for index, part in enumerate(words)]


def all_words(segmentation: Segmentation) -> list[str]:
    parts = sorted([*segmentation.segments, *segmentation.leftovers], key=lambda part: part.start_seconds)
    return [each.text for part in parts for each in part.words]


def test_sentences_are_cut_at_their_pause_and_padded() -> None:
    words = [*evenly("The first sentence is here.", 1.0, 4.0), *evenly("And here is another one.", 5.0, 9.0)]
    found = segment_speech([span(1.0, 4.0), span(5.0, 9.0)], words, 10.0, SegmentSettings(preferred_seconds=3.0))
    assert [(part.start_seconds, part.end_seconds) for part in found.segments] == [(0.8, 4.2), (4.8, 9.2)]
    assert [part.text for part in found.segments] == ["The first sentence is here.", "And here is another one."]
    assert found.leftovers == ()


def test_padding_ends_in_the_middle_of_a_short_pause() -> None:
    found = segment_speech([span(0.0, 6.0), span(6.2, 12.5)], None, 12.5)
    assert [(part.start_seconds, part.end_seconds) for part in found.segments] == [(0.0, 6.1), (6.1, 12.5)]


def test_short_sentences_are_joined() -> None:
    spans = [span(start, start + 0.8) for start in (0.0, 1.2, 2.4, 3.6)]
    found = segment_speech(spans, None, 5.0)
    assert [(part.start_seconds, part.end_seconds) for part in found.segments] == [(0.0, 4.6000000000000005)]


def test_no_clip_reaches_over_a_long_silence() -> None:
    found = segment_speech([span(0.0, 3.0), span(6.0, 9.0)], None, 9.0)
    assert len(found.segments) == 2


def test_a_word_stretched_over_a_pause_is_put_where_it_is_heard() -> None:
    # Whisper's times leave no gaps: "short" is said to last until the next sentence begins.
    words = [*evenly("This one is", 0.0, 2.0), word("short.", 2.0, 4.0), *evenly("The next is longer.", 4.0, 8.0)]
    found = segment_speech([span(0.0, 2.6), span(4.0, 8.0)], words, 8.0, SegmentSettings(max_pause_seconds=1.0))
    assert [part.text for part in found.segments] == ["This one is short.", "The next is longer."]
    assert found.segments[0].end_seconds < 3.0


def test_a_word_on_both_sides_of_a_pause_forbids_the_cut() -> None:
    words = [*evenly("one two three", 0.0, 2.5), word("torn", 2.5, 4.5), *evenly("four five six", 4.5, 7.0)]
    found = segment_speech([span(0.0, 3.4), span(3.8, 7.0)], words, 7.0, SegmentSettings(max_seconds=5.0))
    assert found.segments == ()
    assert {part.reason for part in found.leftovers} == {LeftoverReason.TOO_LONG}


def test_speech_without_text_is_in_no_clip() -> None:
    words = [*evenly("We know this part well.", 0.0, 3.0), *evenly("And this one too, friends.", 6.0, 9.0)]
    found = segment_speech([span(0.0, 3.0), span(3.5, 5.5), span(6.0, 9.0)], words, 9.0)
    assert [part.text for part in found.segments] == ["We know this part well.", "And this one too, friends."]
    assert [(part.start_seconds, part.reason) for part in found.leftovers] == [(3.5, LeftoverReason.WITHOUT_WORDS)]


def test_speech_that_runs_on_after_the_last_word_is_in_no_clip() -> None:
    found = segment_speech([span(0.0, 8.0)], evenly("Only the beginning was understood.", 0.0, 4.0), 8.0)
    assert [part.reason for part in found.leftovers] == [LeftoverReason.WITHOUT_WORDS]
    assert found.segments == ()


def test_a_spoken_word_missing_from_the_text_excludes_its_neighbours() -> None:
    words = evenly("we are glad about it.", 1.65, 5.0)
    found = segment_speech([span(1.0, 1.6), span(1.7, 5.0)], words, 6.0)
    assert found.segments == ()
    assert [part.reason for part in found.leftovers] == [LeftoverReason.WITHOUT_WORDS]


def test_text_without_speech_is_in_no_clip() -> None:
    said = [*evenly("Before the missing part.", 0.0, 3.0), *evenly("And after it, again.", 4.0, 7.0)]
    skipped = [
        Word(text=text, start_seconds=3.0, end_seconds=3.0, probability=0.0)
        for text in "A whole sentence that the speaker left out.".split()
    ]
    found = segment_speech([span(0.0, 3.0), span(4.0, 7.0)], [*said[:4], *skipped, *said[4:]], 8.0)
    assert [part.text for part in found.segments] == ["And after it, again."]
    assert [part.reason for part in found.leftovers] == [LeftoverReason.WORDS_NOT_SPOKEN]


def test_words_that_are_laid_into_a_pause_are_in_no_clip() -> None:
    """They have all the time of the pause, but nobody says anything in it."""
    left_out = [Word(text=text, start_seconds=3.0, end_seconds=4.0, probability=0.0) for text in ("nobody", "says")]
    words = [*evenly("one two three", 0.0, 3.0), *left_out, *evenly("four five six", 4.0, 7.0)]
    found = segment_speech([span(0.0, 3.0), span(4.0, 7.0)], words, 7.0)
    assert "nobody" not in " ".join(segment.text or "" for segment in found.segments)
    assert any(part.reason is LeftoverReason.WORDS_NOT_SPOKEN for part in found.leftovers)


def test_a_breath_does_not_divide_a_sentence() -> None:
    words = [*evenly("Before the breath", 0.0, 2.0), *evenly("and after it.", 2.8, 5.0)]
    found = segment_speech([span(0.0, 2.0), span(2.3, 2.5), span(2.8, 5.0)], words, 5.0)
    assert [part.text for part in found.segments] == ["Before the breath and after it."]


def test_what_is_too_short_or_too_long_is_said_so() -> None:
    found = segment_speech([span(0.0, 0.7), span(5.0, 20.0)], None, 30.0)
    assert found.segments == ()
    assert [part.reason for part in found.leftovers] == [LeftoverReason.TOO_SHORT, LeftoverReason.TOO_LONG]


def test_a_cut_after_a_sentence_is_preferred_to_one_within() -> None:
    words = [
        *evenly("A sentence that ends here.", 0.0, 4.0),
        *evenly("Another that goes on,", 4.4, 7.6),
        *evenly("and on to its end.", 8.0, 11.8),
    ]
    settings = SegmentSettings(max_seconds=9.0)
    found = segment_speech([span(0.0, 4.0), span(4.4, 7.6), span(8.0, 11.8)], words, 12.0, settings)
    assert [part.text for part in found.segments] == [
        "A sentence that ends here.",
        "Another that goes on, and on to its end.",
    ]


def test_words_without_spaces_stay_without_spaces() -> None:
    text = [
        Word(text=sign, start_seconds=i, end_seconds=i + 1, has_space_before=False) for i, sign in enumerate("你好吗")
    ]
    assert segment_speech([span(0.0, 3.0)], text, 3.0).segments[0].text == "你好吗"


def test_nothing_to_cut() -> None:
    for words in (None, [], [word("ghost", 3.0, 3.4)]):
        found = segment_speech([], words, 10.0)
        assert found.segments == ()
        assert all_words(found) == [each.text for each in words or ()]


def test_a_long_recording_does_not_take_long() -> None:
    spans = [span(3.0 * index, 3.0 * index + 2.5) for index in range(2_400)]
    words = [
        each
        for index, one in enumerate(spans)
        for each in evenly(f"{index} words spoken here", one.start_seconds, one.end_seconds)
    ]
    found = segment_speech(spans, words, 7_200.0)
    assert all_words(found) == [each.text for each in words]
    assert found.leftovers == ()


moments = st.floats(min_value=0.0, max_value=60.0, allow_nan=False)


@st.composite
def speeches(draw: st.DrawFn) -> list[Span]:
    edges = sorted(draw(st.lists(moments, max_size=40, unique=True)))
    return [span(start, end) for start, end in itertools.pairwise(edges)][::2]


@st.composite
def spoken_words(draw: st.DrawFn) -> list[Word]:
    """Words as a listener might report them: any order, overlapping, too long, outside of the recording."""
    intervals = draw(st.lists(st.tuples(moments, st.floats(min_value=-1.0, max_value=15.0)), max_size=40))
    if draw(st.booleans()):
        intervals.sort()
    return [word(f"w{index}", start, start + length) for index, (start, length) in enumerate(intervals)]


@given(speech=speeches(), words=st.none() | spoken_words(), duration=st.floats(min_value=0.1, max_value=60.0))
def test_cut_and_text_agree_whatever_comes_in(speech: list[Span], words: list[Word] | None, duration: float) -> None:
    found = segment_speech(speech, words, duration)
    assert all_words(found) == [each.text for each in words or ()]  # in order, none lost, none twice

    for part in found.segments:
        assert SETTINGS.min_seconds <= part.seconds <= SETTINGS.max_seconds
        assert 0.0 <= part.start_seconds < part.end_seconds <= duration
        assert part.text == (None if words is None else join_words(part.words))
        assert words is None or part.words
    for left, right in itertools.pairwise(found.segments):
        assert left.end_seconds <= right.start_seconds

    everywhere = [each for part in [*found.segments, *found.leftovers] for each in part.words]
    for part in found.segments:
        # No other word is heard in it.
        others = [each for each in everywhere if each not in part.words]
        assert all(each.end_seconds <= part.start_seconds or part.end_seconds <= each.start_seconds for each in others)
        for each in part.words:
            assert part.start_seconds <= each.start_seconds <= each.end_seconds <= part.end_seconds


@given(speech=speeches())
def test_no_speech_is_cut_through(speech: list[Span]) -> None:
    found = segment_speech(speech, None, 60.0)
    for part in found.segments:
        for one in speech:
            is_inside = part.start_seconds <= one.start_seconds and one.end_seconds <= part.end_seconds
            is_outside = one.end_seconds <= part.start_seconds or part.end_seconds <= one.start_seconds
            assert is_inside or is_outside
