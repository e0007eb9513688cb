"""Aligns a given text with a transcript: the words of the one with the times of the other."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from backend.transcription.transcript import Word

# Scripts that put no space between words are taken sign by sign.
_UNSPACED = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0eff])")

# Fewer may agree by chance: "in the" is everywhere.
_SURE_WORDS = 3
# Pairs of words that are compared at once: 64 MB.
_MAX_COMPARED = 1 << 22

# People speed up by this much within a sentence.
_HURRY = 1.2
_UNDERSTOOD = 0.5
# Of a word that only the time of its neighbours speaks for.
_SWALLOWED = 0.01
# Between words that were said without a pause; the times of words are not more exact.
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """The words of a text with times.

    Attributes:
        words: all words of the text, in its order. Those that were not heard have a probability of 0, and a place
            between their neighbours.
        agreement: share of words in which text and transcript agree, 0 to 1; missing and added words count.
    """

    words: tuple[Word, ...]
    agreement: float


def align_text(text: str, heard: Sequence[Word]) -> Alignment:
    """Give each word of `text` the time at which it was heard.

    Args:
        text: the text that came with a recording.
        heard: the words of its transcript, in order.
    """
    words = split_text(text)
    keys, heard_keys = [key_of(word.text) for word in words], [key_of(word.text) for word in heard]
    longest = max(len(keys), len(heard_keys))
    agreement = 1.0 - Levenshtein.distance(keys, heard_keys) / longest if longest else 1.0
    return Alignment(words=place_words(words, heard), agreement=agreement)


def place_words(
    words: Sequence[Word], heard: Sequence[Word], begin_seconds: float = 0.0, end_seconds: float | None = None
) -> tuple[Word, ...]:
    """Give words of a text the times of the words heard between two moments; without an end, up to the last of them."""
    keys, heard_keys = [key_of(word.text) for word in words], [key_of(word.text) for word in heard]
    placed: list[Word] = []
    waiting: list[Word] = []
    latest = begin_seconds
    for own, their in [*_pairs(keys, heard_keys), (None, None)]:
        if own is not None and their is None:
            waiting.append(words[own])
            continue
        if waiting:
            # Between the words that were heard on both sides.
            after = heard[their].start_seconds if their is not None else end_seconds
            after = latest if after is None else after
            placed += _spread(waiting, min(latest, after), after)
            waiting = []
        if their is not None:
            other, latest = heard[their], heard[their].end_seconds
            if own is not None:
                placed.append(_at(words[own], other, _likeness(words[own], other)))
    return tuple(_make_room(placed))


def _make_room(words: list[Word]) -> list[Word]:
    """Give words their share of the time of their neighbours where those last long enough for all of them.

    A transcriber may mishear "way to the market" as "waited", which then lasts as long as all four words. If two of
    them had not been said, it would be shorter, at the rate at which this person speaks.
    """
    pace = letters_per_second(words)
    roomy, index = list(words), 0
    for was_heard, run in itertools.groupby(words, key=lambda word: word.probability > 0.0):
        begin, index = index, index + len(list(run))
        if was_heard or not 0 < begin < index < len(words):
            continue
        left, right = words[begin - 1], words[index]
        region = words[begin - 1 : index + 1]
        seconds = right.end_seconds - left.start_seconds
        is_connected = right.start_seconds - left.end_seconds < _PAUSE_SECONDS
        if is_connected and 0 < sum(len(word.text) for word in region) <= _HURRY * pace * seconds:
            spread = _spread(region, left.start_seconds, right.end_seconds)
            roomy[begin - 1 : index + 1] = [
                replace(place, probability=word.probability or _SWALLOWED)
                for place, word in zip(spread, region, strict=True)
            ]
    return roomy


def letters_per_second(words: Sequence[Word]) -> float:
    """Rate of speech, measured on the words that were recognised."""
    understood = [word for word in words if word.probability >= _UNDERSTOOD]
    seconds = sum(word.end_seconds - word.start_seconds for word in understood)
    return sum(len(word.text) for word in understood) / seconds if seconds > 0 else 0.0


def _pairs(keys: Sequence[str], heard_keys: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Which word was heard as which, by index, in order; None where one side has nothing.

    Several equal words in a row are sure. What lies between them is compared letter by letter.
    """
    own, their = 0, 0
    for step in [*Levenshtein.opcodes(keys, heard_keys), None]:
        if step is not None and (step.tag != "equal" or step.src_end - step.src_start < _SURE_WORDS):
            continue
        own_end, their_end = (len(keys), len(heard_keys)) if step is None else (step.src_start, step.dest_start)
        yield from _likeliest_pairs(keys, heard_keys, range(own, own_end), range(their, their_end))
        if step is not None:
            own, their = step.src_end, step.dest_end
            yield from zip(range(own_end, own), range(their_end, their), strict=True)


def _likeliest_pairs(
    keys: Sequence[str], heard_keys: Sequence[str], own: range, their: range
) -> list[tuple[int | None, int | None]]:
    """Pair words so that as few letters as possible have to be changed, left out or put in."""
    most = max(1, _MAX_COMPARED // max(1, len(their)))
    if len(own) > most:
        # Hours without three words in a row that agree: the text belongs to something else. Part by part will do.
        share = len(their) * most // len(own)
        return _likeliest_pairs(keys, heard_keys, own[:most], their[:share]) + _likeliest_pairs(
            keys, heard_keys, own[most:], their[share:]
        )
    left_out = np.array([max(1, len(keys[index])) for index in own], np.float64)
    put_in = np.array([max(1, len(heard_keys[index])) for index in their], np.float64)
    changed = np.zeros((len(own), len(their)), np.float64)
    if changed.size:
        changed = cdist(keys[own.start : own.stop], heard_keys[their.start : their.stop], scorer=Levenshtein.distance)
    costs = _costs_of_pairing(changed, left_out, put_in)
    pairs: list[tuple[int | None, int | None]] = []
    row, column = len(own), len(their)
    while row or column:
        here = costs[row][column]
        if row and column and here == costs[row - 1][column - 1] + changed[row - 1, column - 1]:
            row, column = row - 1, column - 1
            pairs.append((own[row], their[column]))
        elif row and here == costs[row - 1][column] + left_out[row - 1]:
            row -= 1
            pairs.append((own[row], None))
        else:
            column -= 1
            pairs.append((None, their[column]))
    return pairs[::-1]


def _costs_of_pairing(
    changed: NDArray[np.float64], left_out: NDArray[np.float64], put_in: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """What the first words of both sides cost together at least, in rows by words of the text."""
    only_heard = np.concatenate([[0.0], np.cumsum(put_in)])
    costs = [only_heard]
    for changed_row, own in zip(changed, left_out, strict=True):
        row = costs[-1] + own
        row[1:] = np.minimum(row[1:], costs[-1][:-1] + changed_row)
        # Whatever is put in after the cheapest way to anywhere before.
        costs.append(np.minimum.accumulate(row - only_heard) + only_heard)
    return costs


def split_text(text: str) -> list[Word]:
    """Divide a text into words that have no time yet."""
    words: list[Word] = []
    for chunk in text.split():
        parts = [part for part in _UNSPACED.split(chunk) if part]
        for index, part in enumerate(parts):
            if words and index and not key_of(part):
                # A mark of punctuation belongs to the sign before it.
                words[-1] = replace(words[-1], text=words[-1].text + part)
            else:
                words.append(
                    Word(text=part, start_seconds=0.0, end_seconds=0.0, probability=0.0, has_space_before=index == 0)
                )
    return words


def key_of(text: str) -> str:
    """What two ways to write a word have in common: letters and digits, without case."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(sign for sign in folded if unicodedata.category(sign)[0] in "LNM")


def _likeness(word: Word, other: Word) -> float:
    """How sure it is that one word was said where another was heard."""
    return other.probability * float(Levenshtein.normalized_similarity(key_of(word.text), key_of(other.text)))


def _at(word: Word, other: Word, probability: float) -> Word:
    return replace(word, start_seconds=other.start_seconds, end_seconds=other.end_seconds, probability=probability)


def _spread(words: Sequence[Word], start_seconds: float, end_seconds: float) -> list[Word]:
    """Place unheard words one after the other, each as long as its number of letters."""
    lengths = [len(word.text) for word in words]
    step = (end_seconds - start_seconds) / sum(lengths)
    placed, start = [], start_seconds
    for word, length in zip(words, lengths, strict=True):
        placed.append(replace(word, start_seconds=start, end_seconds=start + step * length, probability=0.0))
        start += step * length
    return placed
