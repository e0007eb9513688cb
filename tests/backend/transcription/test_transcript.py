"""Transcripts keep the numbers of their parts, and excerpts have those of their own part."""

from __future__ import annotations

from backend.audio.span import Span
from backend.transcription.hallucination import HallucinationSign, find_hallucination_signs
from backend.transcription.transcript import Passage, Word, assemble_transcript, join_words


def word(text: str, start: float, *, probability: float = 1.0, space: bool = True) -> Word:
    return Word(
        text=text, start_seconds=start, end_seconds=start + 0.5, probability=probability, has_space_before=space
    )


def passage(start: float, end: float, *, silence: float = 0.0, ratio: float = 1.0, guess: float = -0.1) -> Passage:
    return Passage(
        start_seconds=start,
        end_seconds=end,
        no_speech_probability=silence,
        compression_ratio=ratio,
        mean_log_probability=guess,
    )


def test_words_are_joined_as_their_script_has_it() -> None:
    assert join_words([word("Hello,", 0), word("world", 1), word("-wide", 2, space=False)]) == "Hello, world-wide"
    assert join_words([word("你", 0, space=False), word("好", 1, space=False)]) == "你好"
    assert join_words([]) == ""


def test_the_worst_passage_speaks_for_all() -> None:
    whole = assemble_transcript(
        [word("a", 0), word("b", 5, probability=0.5)],
        [passage(0, 4), passage(4, 8, silence=0.9, ratio=3.0, guess=-2.0)],
        "en",
    )
    assert whole.text == "a b"
    assert whole.confidence == 0.75
    assert find_hallucination_signs(whole) == (
        HallucinationSign.NO_SPEECH,
        HallucinationSign.REPETITION,
        HallucinationSign.GUESS,
    )


def test_an_excerpt_has_its_own_words_times_and_numbers() -> None:
    whole = assemble_transcript(
        [word("a", 0), word("b", 5)], [passage(0, 4), passage(4, 8, silence=0.9, ratio=3.0, guess=-2.0)], "en"
    )
    part = whole.excerpt(Span(start_seconds=0.0, end_seconds=4.0))
    assert (part.text, part.language, find_hallucination_signs(part)) == ("a", "en", ())
    other = whole.excerpt(Span(start_seconds=4.0, end_seconds=8.0))
    assert other.words[0].start_seconds == 1.0
    assert other.passages[0].start_seconds == 0.0
    assert len(find_hallucination_signs(other)) == 3


def test_nothing_heard_is_no_speech() -> None:
    nothing = assemble_transcript([], [], "")
    assert (nothing.text, nothing.confidence) == ("", 0.0)
    assert HallucinationSign.NO_SPEECH in find_hallucination_signs(nothing)
