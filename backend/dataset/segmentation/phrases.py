"""The phrases between the pauses of a recording, found from voice activity and the times of words."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from backend.audio.span import Span
from backend.transcription.transcript import Word

# Word times and voice activity disagree by this much even when both are right.
_TOLERANCE_SECONDS = 0.15
# A word that seems to lie on both sides of a pause belongs to one of them if the other has less than this of it.
_STRAY_SECONDS = 0.1
_STRAY_SHARE = 0.25
# Speech without words that is shorter is a breath or a click, and may stay inside a clip.
_BREATH_SECONDS = 0.3
# Within connected speech the times of words are less exact than at pauses.
_UNHEARD_SECONDS = 0.8
# Between two pauses they are not off by more of what is said there.
_HEARD_SHARE = 0.25
# Auctioneers say fewer in a second.
_FASTEST_LETTERS_PER_SECOND = 35.0


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """Speech without a pause, in seconds; `earliest` and `latest` are the middles of the pauses around it.

    A breath is too short to be a word. An unheard phrase has speech that belongs to no word. An unspoken phrase has
    words without speech: the given text has a sentence that the speaker left out.
    """

    begin: float
    end: float
    earliest: float
    latest: float
    words: tuple[Word, ...]
    is_breath: bool = False
    is_unheard: bool = False
    is_unspoken: bool = False


def find_phrases(
    speech: Sequence[Span], words: Sequence[Word] | None, duration_seconds: float, min_pause_seconds: float
) -> list[Phrase]:
    """Join whatever speech and words have no pause between them; what is left are the phrases, in order."""
    spans = _clamp_spans(speech, duration_seconds)
    fitted = _fit_words(_disentangle(words or (), duration_seconds), spans)
    joined = _join_neighbours([*spans, *((word.start_seconds, word.end_seconds) for word in fitted)], min_pause_seconds)
    middles = [(left[1] + right[0]) / 2 for left, right in itertools.pairwise(joined)]
    starts = [word.start_seconds for word in fitted]
    phrases = []
    for (begin, end), earliest, latest in zip(joined, [0.0, *middles], [*middles, duration_seconds], strict=False):
        own_words = tuple(fitted[bisect.bisect_left(starts, begin) : bisect.bisect_right(starts, end)])
        phrase = Phrase(begin=begin, end=end, earliest=earliest, latest=latest, words=own_words)
        phrases.append(phrase if words is None else _compare_witnesses(phrase, spans))
    return phrases


def _join_neighbours(stretches: list[tuple[float, float]], min_pause_seconds: float) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(stretches):
        if joined and begin - joined[-1][1] < min_pause_seconds:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _clamp_spans(speech: Sequence[Span], duration_seconds: float) -> list[tuple[float, float]]:
    clamped = [(max(0.0, span.start_seconds), min(span.end_seconds, duration_seconds)) for span in speech]
    return [(begin, end) for begin, end in clamped if begin < end]


def _disentangle(words: Sequence[Word], duration_seconds: float) -> list[Word]:
    """Give each word a place of its own, in the order of the text: times may run backwards, overlap or overshoot."""
    starts: list[float] = []
    for word in words:
        earliest = starts[-1] if starts else 0.0
        starts.append(min(max(word.start_seconds, earliest), duration_seconds))
    ends = [
        min(max(word.end_seconds, start), following)
        for word, start, following in zip(words, starts, [*starts[1:], duration_seconds], strict=False)
    ]
    return [
        replace(word, start_seconds=start, end_seconds=end)
        for word, start, end in zip(words, starts, ends, strict=True)
    ]


def _fit_words(words: list[Word], spans: list[tuple[float, float]]) -> list[Word]:
    """Take the pauses out of words that were stretched over them; a word keeps or narrows its place."""
    ends = [end for _, end in spans]
    fitted = []
    for word in words:
        begin, end = word.start_seconds, word.end_seconds
        first = bisect.bisect_right(ends, begin)
        parts = []
        for span_begin, span_end in spans[first:]:
            if span_begin >= end:
                break
            parts.append((min(end, span_end) - max(begin, span_begin), span_begin, span_end))
        if parts:
            longest = max(parts)
            stray = sum(part[0] for part in parts) - longest[0]
            if stray <= min(_STRAY_SECONDS, _STRAY_SHARE * longest[0]):
                begin = max(begin, longest[1] - _TOLERANCE_SECONDS)
                end = min(end, longest[2] + _TOLERANCE_SECONDS)
        fitted.append(replace(word, start_seconds=begin, end_seconds=end))
    return fitted


def _compare_witnesses(phrase: Phrase, spans: list[tuple[float, float]]) -> Phrase:
    """Mark a phrase whose speech and words do not match."""
    if not phrase.words:
        is_breath = phrase.end - phrase.begin < _BREATH_SECONDS
        return replace(phrase, is_breath=is_breath, is_unheard=not is_breath)
    return replace(
        phrase,
        is_unheard=_max_unheard(phrase, spans) >= _UNHEARD_SECONDS
        or any(_is_unheard(span, phrase.words) for span in spans if phrase.begin <= span[0] and span[1] <= phrase.end),
        is_unspoken=any(_is_unspoken(run, spans) for run in _unheard_runs(phrase.words)),
    )


def _unheard_runs(words: tuple[Word, ...]) -> Iterator[list[Word]]:
    """Neighbouring words of a text for which there was nothing to be heard: those that alignment gives no chance."""
    for was_heard, run in itertools.groupby(words, key=lambda word: word.probability > 0.0):
        if not was_heard:
            yield list(run)


def _is_unspoken(run: list[Word], spans: list[tuple[float, float]]) -> bool:
    """Whether there is no time to say some words; a single one may have been swallowed, or written in another way."""
    begin, end = run[0].start_seconds, run[-1].end_seconds
    # Pauses do not count.
    seconds = sum(max(0.0, min(end, to) - max(begin, since)) for since, to in spans)
    num_letters = sum(len(word.text) for word in run)
    return len(run) > 1 and num_letters > _FASTEST_LETTERS_PER_SECOND * seconds


def _is_unheard(span: tuple[float, float], words: tuple[Word, ...]) -> bool:
    """Whether nearly all that is said between two pauses lies in no word."""
    begin, end = span
    heard = sum(max(0.0, min(end, word.end_seconds) - max(begin, word.start_seconds)) for word in words)
    return end - begin >= _BREATH_SECONDS and heard < _HEARD_SHARE * (end - begin)


def _max_unheard(phrase: Phrase, spans: list[tuple[float, float]]) -> float:
    """The longest stretch of speech in `phrase` that no word covers."""
    ends = [phrase.begin, *(word.end_seconds for word in phrase.words)]
    starts = [*(word.start_seconds for word in phrase.words), phrase.end]
    longest = 0.0
    for begin, end in zip(ends, starts, strict=True):
        if end - begin >= _UNHEARD_SECONDS:
            longest = max(longest, *(min(end, to) - max(begin, since) for since, to in spans), 0.0)
    return longest
