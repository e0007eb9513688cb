"""A given text divided at the pauses of a recording: which words are said between two pauses, and how sure that is.

A transcriber mishears words, and places those next to a pause on the wrong side of it. What is said between two
pauses is therefore decided by several criteria at once: the letters heard there, the duration, and that people pause
at the end of a sentence. If these do not agree on the words next to a pause, no cut is made there.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from backend.audio.span import Span
from backend.dataset.segmentation.alignment import align_text, key_of, letters_per_second, place_words, split_text
from backend.transcription.transcript import Word

# The last three: ellipsis and the full-width marks of Chinese and Japanese.
_SENTENCE_ENDS = tuple(".!?\u2026\u3002\uff01\uff1f")
_CLOSING_MARKS = "\"'\u201d\u2019\u00bb)"
_PHRASE_ENDS = tuple(",;:\u2014\u3001\uff0c")
# Silence between words, not within one.
_PAUSE_SECONDS = 0.09
# How many words a pause may be from where the text alone puts it, where the speech was recognised and where not.
_NEAR_WORDS, _FAR_WORDS = 3, 9
_UNDERSTOOD = 0.3
# Of what was heard, the times of words are off by less than two words.
_HEARD_WORDS = 2
_USUAL_LETTERS_PER_SECOND = 14.0

# The costs of a division of the text, in misheard letters.
_LETTER_TOO_MANY = 0.4
_SENTENCE_WITHOUT_PAUSE = 2.0
_PAUSE_AFTER_COMMA = 1.0
_PAUSE_IN_PHRASE = 2.0
_PAUSE_IN_PHRASE_PER_SECOND = 6.0
_HEARD_ELSEWHERE = 0.5
_HEARD_ELSEWHERE_PER_SECOND = 6.0
# A division is sure where any other is worse by more than this.
_SURE_LETTERS = 4.0
# A word that reaches so far over a pause on either side counts as being on an unknown side.
_ACROSS_SECONDS = 0.2


def lay_text(text: str, heard: Sequence[Word], speech: Sequence[Span]) -> tuple[Word, ...]:
    """Give each word of a text its time in a recording, between the pauses it is said between.

    Words of which it is not sure on which side of a pause they are said get times on both sides of it.

    Args:
        text: the text that came with the recording.
        heard: the words of its transcript, in order.
        speech: spans of speech, in order.
    """
    rough = align_text(text, heard).words
    stretches = _join_near(speech)
    if len(stretches) < 2 or not heard or not rough:
        return rough
    words = split_text(text)
    division = _Division(words, rough, heard, stretches).best()
    placed: list[list[Word]] = []
    for stretch, (own, their) in zip(stretches, division.parts, strict=True):
        inside = [_clamped(word, stretch) for word in heard[their]]
        placed.append([_clamped(word, stretch) for word in place_words(words[own], inside, *stretch)])
    for gap, is_sure in enumerate(division.are_sure):
        if not is_sure:
            _stretch_over(placed, stretches, gap)
    return tuple(word for words in placed for word in words)


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """For each stretch of speech its words of the text and of what was heard; for each pause whether that is sure."""

    parts: list[tuple[slice, slice]]
    are_sure: list[bool]


class _Division:
    """The cheapest way to divide a text, and what was heard, among stretches of speech."""

    def __init__(
        self,
        words: Sequence[Word],
        rough: Sequence[Word],
        heard: Sequence[Word],
        stretches: Sequence[tuple[float, float]],
    ) -> None:
        self._heard = heard
        self._stretches = stretches
        self._text = _Letters([key_of(word.text) for word in words])
        self._sound = _Letters([key_of(word.text) for word in heard])
        self._pace = letters_per_second(rough) or _USUAL_LETTERS_PER_SECOND
        marks = [word.text.rstrip(_CLOSING_MARKS) for word in words]
        self._ends_sentence = np.array([mark.endswith(_SENTENCE_ENDS) for mark in marks])
        self._ends_phrase = np.array([mark.endswith(_PHRASE_ENDS) for mark in marks])
        self._sentences = np.concatenate([[0], np.cumsum(self._ends_sentence)])
        middles = [(left[1] + right[0]) / 2 for left, right in itertools.pairwise(stretches)]
        self._own = [np.zeros(1, np.intp), *_windows(rough, self._text, stretches), np.array([len(words)])]
        near = [_around(first, _HEARD_WORDS, len(heard)) for first in _first_heard(heard, middles)]
        self._their = [np.zeros(1, np.intp), *near, np.array([len(heard)])]

    def best(self) -> _Parts:
        """Find it: forwards what reaching each division costs, backwards what the rest does."""
        costs = [self._costs(number) for number in range(len(self._stretches))]
        forwards, backwards = [np.zeros((1, 1))], [np.zeros((1, 1))]
        for cost in costs:
            forwards.append((forwards[-1][:, :, None, None] + cost).min(axis=(0, 1)))
        for cost in costs[::-1]:
            backwards.append((cost + backwards[-1]).min(axis=(2, 3)))
        chosen, are_sure, here = [(0, 0)], [], (0, 0)
        for own, their, cost, reached, rest in zip(
            self._own[1:], self._their[1:], costs, forwards[1:], backwards[-2::-1], strict=True
        ):
            # From where the way has got to: of several that cost the same it must be one way.
            onwards = cost[here] + rest
            row, column = divmod(int(np.argmin(onwards)), len(their))
            here = row, column
            chosen.append((int(own[row]), int(their[column])))
            are_sure.append(self._is_sure(own, (reached + rest).min(axis=1), row))
        parts = [(slice(left[0], right[0]), slice(left[1], right[1])) for left, right in itertools.pairwise(chosen)]
        return _Parts(parts=parts, are_sure=are_sure[:-1])

    def _is_sure(self, options: NDArray[np.intp], costs: NDArray[np.float64], chosen: int) -> bool:
        """Whether a pause is before the word at `chosen` of some that it may be before."""
        is_first, is_last = chosen == 0 and options[0] > 0, chosen == len(options) - 1
        if is_first or (is_last and options[-1] < len(self._ends_sentence)):
            return False  # perhaps it is before one that was not looked at
        return bool(costs[chosen] + _SURE_LETTERS <= np.delete(costs, chosen).min(initial=np.inf))

    def _costs(self, number: int) -> NDArray[np.float64]:
        """Of a stretch from each division before it to each one after it: (own, their, own, their)."""
        own_from, own_to = self._own[number : number + 2]
        heard_from, heard_to = self._their[number : number + 2]
        begin, end = self._stretches[number]
        texts, sounds = self._text.between(own_from, own_to), self._sound.between(heard_from, heard_to)
        misheard = cdist(texts, sounds, scorer=Levenshtein.distance).astype(np.float64)
        costs: NDArray[np.float64] = misheard.reshape(
            len(own_from), len(own_to), len(heard_from), len(heard_to)
        ).transpose(0, 2, 1, 3)
        length = self._text.ends[own_to][None, :] - self._text.ends[own_from][:, None]
        by_words = _LETTER_TOO_MANY * np.abs(length - self._pace * (end - begin))
        # One may end with the stretch, too, which is as it should be.
        inner = self._sentences[np.maximum(own_to - 1, 0)][None, :] - self._sentences[own_from][:, None]
        by_words += _SENTENCE_WITHOUT_PAUSE * np.maximum(inner, 0)
        by_words[own_from[:, None] > own_to[None, :]] = np.inf
        by_sound = np.where(heard_from[:, None] > heard_to[None, :], np.inf, 0.0)
        costs = costs + by_words[:, None, :, None] + by_sound[None, :, None, :]
        if number + 1 < len(self._stretches):
            pause = end, self._stretches[number + 1][0]
            costs += self._cost_of_pausing(own_to, pause[1] - pause[0])[None, None, :, None]
            costs += self._cost_of_moving(heard_to, pause)[None, None, None, :]
        return costs

    def _cost_of_pausing(self, before: NDArray[np.intp], seconds: float) -> NDArray[np.float64]:
        """The cost of a pause in front of each of some words."""
        last = np.maximum(before - 1, 0)
        within = _PAUSE_IN_PHRASE + _PAUSE_IN_PHRASE_PER_SECOND * min(seconds, 1.0)
        cost: NDArray[np.float64] = np.where(self._ends_phrase[last], _PAUSE_AFTER_COMMA, within)
        cost[self._ends_sentence[last] | (before == 0)] = 0.0
        return cost

    def _cost_of_moving(self, before: NDArray[np.intp], pause: tuple[float, float]) -> NDArray[np.float64]:
        """The cost of assigning heard words to the other side of a pause than their times say."""
        middle, first, end = sum(pause) / 2, int(before[0]), int(before[-1])
        costs = []
        for index in before.tolist():
            moved = [pause[0] - word.end_seconds for word in self._heard[index:end] if word.middle_seconds < middle]
            moved += [
                word.start_seconds - pause[1] for word in self._heard[first:index] if word.middle_seconds >= middle
            ]
            costs.append(sum(_HEARD_ELSEWHERE + _HEARD_ELSEWHERE_PER_SECOND * max(0.0, far) for far in moved))
        return np.array(costs)


class _Letters:
    """The letters of words one after the other, to be taken from word to word."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._text = "".join(keys)
        self.ends = np.concatenate([[0], np.cumsum([len(key) for key in keys], dtype=np.int64)])

    def between(self, begins: NDArray[np.intp], ends: NDArray[np.intp]) -> list[str]:
        """From each of `begins` to each of `ends`."""
        return [self._text[self.ends[begin] : self.ends[max(begin, end)]] for begin in begins for end in ends]


def _windows(
    rough: Sequence[Word], letters: _Letters, stretches: Sequence[tuple[float, float]]
) -> list[NDArray[np.intp]]:
    """For each pause the words that may be the first ones after it."""
    windows = []
    for first in _first_words(rough, letters, stretches):
        beside = rough[max(0, first - _NEAR_WORDS) : first + _NEAR_WORDS]
        is_understood = all(word.probability >= _UNDERSTOOD for word in beside)
        windows.append(_around(first, _NEAR_WORDS if is_understood else _FAR_WORDS, len(rough)))
    return windows


def _first_words(rough: Sequence[Word], letters: _Letters, stretches: Sequence[tuple[float, float]]) -> list[int]:
    """Of each pause the word after it, if everything between what was understood is said at one pace."""
    edges = np.array(stretches).ravel()
    spoken = np.repeat(np.cumsum(np.diff(edges)[::2]), 2)
    spoken = np.concatenate([[0.0], spoken[:-1]])
    understood = [index for index, word in enumerate(rough) if word.probability >= _UNDERSTOOD]
    moments = [moment for index in understood for moment in (rough[index].start_seconds, rough[index].end_seconds)]
    known = [0, *(letters.ends[edge] for index in understood for edge in (index, index + 1)), letters.ends[-1]]
    times = np.maximum.accumulate([0.0, *np.interp(moments, edges, spoken), spoken[-1]])
    first: list[int] = np.abs(letters.ends - np.interp(spoken[1:-1:2], times, known)[:, None]).argmin(axis=1).tolist()
    return first


def _first_heard(heard: Sequence[Word], moments: Sequence[float]) -> list[int]:
    """Of each moment the first word after it."""
    places = np.maximum.accumulate([word.middle_seconds for word in heard])
    first: list[int] = np.searchsorted(places, moments).tolist()
    return first


def _around(index: int, most: int, length: int) -> NDArray[np.intp]:
    return np.arange(max(0, index - most), min(length, index + most) + 1)


def _join_near(speech: Sequence[Span]) -> list[tuple[float, float]]:
    """Stretches of speech that have a pause between them."""
    joined: list[tuple[float, float]] = []
    for span in speech:
        if joined and span.start_seconds - joined[-1][1] < _PAUSE_SECONDS:
            joined[-1] = joined[-1][0], max(joined[-1][1], span.end_seconds)
        else:
            joined.append((span.start_seconds, span.end_seconds))
    return joined


def _clamped(word: Word, stretch: tuple[float, float]) -> Word:
    begin, end = (min(max(seconds, stretch[0]), stretch[1]) for seconds in (word.start_seconds, word.end_seconds))
    return replace(word, start_seconds=begin, end_seconds=end)


def _stretch_over(placed: list[list[Word]], stretches: Sequence[tuple[float, float]], gap: int) -> None:
    """Let the words next to a pause reach over it, which forbids a cut."""
    (begin, end), (next_begin, next_end) = stretches[gap : gap + 2]
    left, right = placed[gap], placed[gap + 1]
    since, until = max(begin, end - _ACROSS_SECONDS), min(next_end, next_begin + _ACROSS_SECONDS)
    if left:
        left[-1] = replace(left[-1], start_seconds=min(left[-1].start_seconds, since), end_seconds=until)
        # None of the others is in its place.
        right[:] = [_clamped(word, (until, next_end)) for word in right]
    elif right:
        right[0] = replace(right[0], start_seconds=since)
