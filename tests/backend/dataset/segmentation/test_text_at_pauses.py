"""Which words of a text are said between two pauses, whatever was heard of them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from backend.audio.span import Span
from backend.dataset.segmentation.alignment import split_text
from backend.dataset.segmentation.segment import SegmentSettings, segment_speech
from backend.dataset.segmentation.text_at_pauses import lay_text
from backend.transcription.transcript import Word
from tests.backend.dataset.recorded_words import words_between

SENTENCES = (
    "Nobody was in the room when the light went out.",
    "Isn't that the good ring?",
    "Please bring the phone and a sandwich along.",
    "Turn left at the fountain and walk past the bank.",
)
# As long as it takes to say each, half a second apart.
SPEECH = [
    Span(start_seconds=start, end_seconds=end) for start, end in ((0.5, 3.2), (3.7, 5.1), (5.6, 8.1), (8.6, 11.4))
]
SETTINGS = SegmentSettings(min_seconds=1.0, preferred_seconds=2.0)


def heard(*texts: str) -> list[Word]:
    """What was heard in each span, evenly in time."""
    return [
        word
        for text, span in zip(texts, SPEECH, strict=True)
        for word in (words_between(text, span.start_seconds, span.end_seconds) if text else ())
    ]


def texts_of_clips(text: str, words: list[Word]) -> list[str | None]:
    found = segment_speech(SPEECH, lay_text(text, words, SPEECH), 12.0, SETTINGS)
    return [segment.text for segment in found.segments]


def test_what_was_understood_is_where_it_was_heard() -> None:
    assert texts_of_clips(" ".join(SENTENCES), heard(*SENTENCES)) == list(SENTENCES)


def test_an_unrecognised_sentence_is_placed_between_its_pauses() -> None:
    for missing in range(len(SENTENCES)):
        known = [*SENTENCES[:missing], "", *SENTENCES[missing + 1 :]]
        assert texts_of_clips(" ".join(SENTENCES), heard(*known)) == list(SENTENCES)


def test_a_word_that_was_heard_beyond_a_pause_comes_back() -> None:
    moved = heard(SENTENCES[0], "is that the good", "ring these bring the phone and the sandwich", SENTENCES[3])
    assert texts_of_clips(" ".join(SENTENCES), moved) == list(SENTENCES)


def test_misheard_beginnings_and_ends_stay_with_their_sentence() -> None:
    misheard = heard(
        "No bodies in the room when delight when towed",
        "thing at a good wing",
        "These ring the phones and which is long",
        "earn left at mountains and walked as the tank",
    )
    assert texts_of_clips(" ".join(SENTENCES), misheard) == list(SENTENCES)


def test_no_cut_is_made_at_a_pause_with_uncertain_words() -> None:
    """A list without a mark, of which nothing was understood: any of its words could be before the pause."""
    rhyme = "one two ten six red cat dog sun map bed cup hat"
    clips = texts_of_clips(f"{SENTENCES[0]} {rhyme}. {SENTENCES[3]}", heard(SENTENCES[0], "", "", SENTENCES[3]))
    assert clips == [SENTENCES[0], f"{rhyme}.", SENTENCES[3]]


def test_a_sentence_that_is_not_said_is_in_no_clip() -> None:
    text = " ".join([*SENTENCES[:2], "This is what the speaker left out of the text.", *SENTENCES[2:]])
    clips = texts_of_clips(text, heard(*SENTENCES))
    assert not any("left out" in clip for clip in clips if clip)
    assert {SENTENCES[0], SENTENCES[3]} <= set(clips)


def test_what_is_said_and_not_written_is_in_no_clip() -> None:
    text = " ".join([*SENTENCES[:2], SENTENCES[3]])
    assert texts_of_clips(text, heard(*SENTENCES)) == [*SENTENCES[:2], SENTENCES[3]]


@given(
    text=st.text("ab .,?", max_size=120),
    spoken=st.lists(st.tuples(st.text("ab", max_size=6), st.floats(0.0, 30.0), st.floats(0.0, 2.0)), max_size=25),
    edges=st.lists(st.floats(0.0, 30.0), max_size=20, unique=True),
)
def test_every_word_gets_a_time_in_its_order(
    text: str, spoken: list[tuple[str, float, float]], edges: list[float]
) -> None:
    edges = sorted(edges)
    speech = [Span(start_seconds=start, end_seconds=end) for start, end in itertools.pairwise(edges)][::2]
    words = [Word(text=each, start_seconds=start, end_seconds=start + length) for each, start, length in spoken]
    found = lay_text(text, words, speech)
    assert [word.text for word in found] == [word.text for word in split_text(text)]
    assert all(word.start_seconds <= word.end_seconds for word in found)
