"""A long recording cut at its pauses, so that each piece and its text agree.

Two sources say where speech is: voice activity, exact about silence but without words, and the times of words, which
are off by tenths of a second. A cut is made only where both report silence. So a word is never divided, and a clip's
text is exactly the words within it; what cannot be cut that way is reported instead of guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from backend.audio.span import Span
from backend.dataset.segmentation.phrases import Phrase, find_phrases
from backend.transcription.transcript import Word, join_words

# The last three: ellipsis and the full-width marks of Chinese and Japanese.
_SENTENCE_ENDS = tuple(".!?\u2026\u3002\uff01\uff1f")
_CLOSING_MARKS = "\"'\u201d\u2019\u00bb)"
_COST_OF_LOSING_A_SECOND = 10.0
_COST_OF_LOSING = 10.0
_COST_OF_LOSING_A_BREATH = 0.01
_COST_OF_CUTTING_A_SENTENCE = 0.3
_COST_OF_A_TIGHT_CUT = 0.5
_COMFORTABLE_PAUSE_SECONDS = 0.4


@dataclass(frozen=True, kw_only=True)
class SegmentSettings:
    """What a good clip is like; all in seconds."""

    min_seconds: float = 2.0
    max_seconds: float = 12.0
    # Where there is a choice. Long enough for the melody of a sentence, short enough for many to fit into a batch.
    preferred_seconds: float = 6.0
    # Around what is spoken, as far as the pause goes.
    padding_seconds: float = 0.2
    # Silence in both sources that is long enough to cut at: three frames of voice activity.
    min_pause_seconds: float = 0.09
    # A longer silence is the end of a thought; inside a clip it would teach the model to stall.
    max_pause_seconds: float = 1.5


DEFAULT_SETTINGS = SegmentSettings()


@dataclass(frozen=True, kw_only=True)
class Segment(Span):
    """A piece worth keeping, padding included; `text` is that of `words`, or None if no words were given."""

    text: str | None
    words: tuple[Word, ...] = ()


class LeftoverReason(StrEnum):
    """Why a stretch of speech became no segment."""

    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    WITHOUT_WORDS = "without_words"
    WORDS_NOT_SPOKEN = "words_not_spoken"


@dataclass(frozen=True, kw_only=True)
class Leftover(Span):
    """Speech that is in no segment, and why."""

    reason: LeftoverReason
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Segmentation:
    """A recording divided: each word is in one segment or in one leftover."""

    segments: tuple[Segment, ...]
    leftovers: tuple[Leftover, ...]


def segment_speech(
    speech: Sequence[Span],
    words: Sequence[Word] | None,
    duration_seconds: float,
    settings: SegmentSettings = DEFAULT_SETTINGS,
) -> Segmentation:
    """Cut a recording at its pauses into pieces of the wanted length.

    Args:
        speech: spans of speech, in order, as `find_speech` returns them.
        words: what is said, with times, in order; None when only pauses are known.
        duration_seconds: of the recording; nothing reaches beyond it.
        settings: what a good clip is like.
    """
    has_words = words is not None
    phrases = find_phrases(speech, words, duration_seconds, settings.min_pause_seconds)
    chosen = _choose_runs(phrases, has_words, settings)
    taken = {index for first, end in chosen for index in range(first, end)}
    segments = tuple(_join(phrases[first:end], has_words, settings) for first, end in chosen)
    leftovers = tuple(
        Leftover(
            start_seconds=phrase.begin,
            end_seconds=phrase.end,
            reason=_reason_for_losing(phrase, settings),
            words=phrase.words,
        )
        for index, phrase in enumerate(phrases)
        if index not in taken
    )
    return Segmentation(segments=segments, leftovers=leftovers)


def _choose_runs(phrases: list[Phrase], has_words: bool, settings: SegmentSettings) -> list[tuple[int, int]]:
    """Choose which neighbouring phrases to join, as index ranges, so that little is lost and cuts are good ones."""
    best = [0.0]
    origin: list[tuple[int, bool]] = [(0, False)]
    for end in range(1, len(phrases) + 1):
        lost = phrases[end - 1]
        options = [(best[end - 1] + _cost_of_losing(lost), end - 1, False)]
        options += [
            (best[first] + _cost_of_run(phrases[first:end], has_words, settings), first, True)
            for first in _possible_begins(phrases, end, has_words, settings)
        ]
        cost, first, is_kept = min(options)
        best.append(cost)
        origin.append((first, is_kept))
    runs = []
    end = len(phrases)
    while end:
        first, is_kept = origin[end]
        if is_kept:
            runs.append((first, end))
        end = first
    return runs[::-1]


def _possible_begins(phrases: list[Phrase], end: int, has_words: bool, settings: SegmentSettings) -> Iterator[int]:
    """Indices of phrases with which a permitted run that ends before `end` can begin."""
    if phrases[end - 1].is_breath:
        return
    for first in range(end - 1, -1, -1):
        phrase = phrases[first]
        if phrase.is_unheard or phrase.is_unspoken:
            return
        if first < end - 1 and phrases[first + 1].begin - phrase.end > settings.max_pause_seconds:
            return
        start_seconds, end_seconds = _padded(phrase, phrases[end - 1], settings)
        seconds = end_seconds - start_seconds
        if seconds > settings.max_seconds:
            return
        if seconds >= settings.min_seconds and not (has_words and phrase.is_breath):
            yield first


def _cost_of_losing(phrase: Phrase) -> float:
    if phrase.is_breath:
        return _COST_OF_LOSING_A_BREATH
    return _COST_OF_LOSING + _COST_OF_LOSING_A_SECOND * (phrase.end - phrase.begin)


def _cost_of_run(run: list[Phrase], has_words: bool, settings: SegmentSettings) -> float:
    start_seconds, end_seconds = _padded(run[0], run[-1], settings)
    cost = ((end_seconds - start_seconds - settings.preferred_seconds) / settings.preferred_seconds) ** 2
    # Half the pause before and half the one after.
    for half_pause in (run[0].begin - run[0].earliest, run[-1].latest - run[-1].end):
        cost += _COST_OF_A_TIGHT_CUT * max(0.0, 1.0 - 2 * half_pause / _COMFORTABLE_PAUSE_SECONDS)
    if has_words and not run[-1].words[-1].text.rstrip(_CLOSING_MARKS).endswith(_SENTENCE_ENDS):
        cost += _COST_OF_CUTTING_A_SENTENCE
    return cost


def _padded(first: Phrase, last: Phrase, settings: SegmentSettings) -> tuple[float, float]:
    """Where a run begins and ends with its padding."""
    return (
        max(first.earliest, first.begin - settings.padding_seconds),
        min(last.latest, last.end + settings.padding_seconds),
    )


def _join(run: list[Phrase], has_words: bool, settings: SegmentSettings) -> Segment:
    start_seconds, end_seconds = _padded(run[0], run[-1], settings)
    words = tuple(word for phrase in run for word in phrase.words)
    text = join_words(words) if has_words else None
    return Segment(start_seconds=start_seconds, end_seconds=end_seconds, text=text, words=words)


def _reason_for_losing(phrase: Phrase, settings: SegmentSettings) -> LeftoverReason:
    if phrase.is_breath or phrase.is_unheard:
        return LeftoverReason.WITHOUT_WORDS
    if phrase.is_unspoken:
        return LeftoverReason.WORDS_NOT_SPOKEN
    begin, end = _padded(phrase, phrase, settings)
    is_long = end - begin > settings.max_seconds
    return LeftoverReason.TOO_LONG if is_long else LeftoverReason.TOO_SHORT
