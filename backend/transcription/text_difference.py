"""Two texts of the same speech compared: how far apart they are, and in which words, when spelling does not count."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from rapidfuzz.distance import Editop, Levenshtein

from backend.transcription.spoken_words import Reading, SpokenWord, as_words, readings_of, spoken_words

LARGEST_RATE = 1.0
"""What is added can make more errors than there are words; more than all wrong is no worse than all wrong."""

_TEXTS_REMEMBERED = 8192
# Every further round of choosing among readings can only improve what the first one found.
_ROUNDS = 2
_MOST_SAID = 3
_MOST_QUOTED_WORDS = 8


class ChangeKind(StrEnum):
    """What happened to a stretch of words."""

    EQUAL = "equal"
    REPLACED = "replaced"
    MISSING = "missing"
    ADDED = "added"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A stretch of words in both texts; empty in the one that has none there."""

    kind: ChangeKind
    expected: str
    heard: str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far what was heard is from the expected text.

    Attributes:
        word_error_rate: wrong, missing and added words per expected word; can exceed 1.
        character_error_rate: the same for letters and digits, so that "set up" and "setup" are equal.
        changes: the whole of both texts, stretch by stretch.
    """

    word_error_rate: float
    character_error_rate: float
    changes: tuple[Change, ...]

    def describe(self) -> str:
        """What differs, for people: "heard 'main menu' where the text says 'main men'"; empty where nothing does."""
        found = [_sentence_of(change) for change in self.changes if change.kind is not ChangeKind.EQUAL]
        if len(found) > _MOST_SAID:
            found = [*found[:_MOST_SAID], f"and {len(found) - _MOST_SAID} more"]
        return "; ".join(found)


@dataclass(frozen=True, kw_only=True)
class LetterComparison:
    """Letters and digits of two texts, and what leads from one to the other.

    Attributes:
        expected: letters of the expected text.
        heard: letters of what was heard.
        edits: letters that are wrong, missing or added, without those in the place of unjudged words.
        num_expected: letters that are judged.
        num_heard: letters that were heard in their place.
    """

    expected: str
    heard: str
    edits: tuple[Editop, ...]
    num_expected: int
    num_heard: int


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def normalise_text(text: str, language: str = "en") -> str:
    """What two ways to write the same have in common, as text: no case, no punctuation, single spaces, one spelling.

    Two texts with equal results say the same; a number stands in its likeliest reading.
    """
    return " ".join(word.key for word in _remembered_words(text, language))


def letters_of(text: str, language: str = "en") -> str:
    """The same without spaces: what character errors are counted in."""
    return _letters(_remembered_words(text, language))


def compare_texts(expected: str, heard: str, language: str = "en", *, unjudged: Collection[str] = ()) -> Difference:
    """Compare what was heard with what was expected.

    Args:
        expected: the text that is checked.
        heard: what a listener made of the sound.
        language: of both, as a code. English numbers, abbreviations, contractions and spellings are understood.
        unjudged: words of `expected`, in lower case, which the listener cannot know, such as names: whatever was heard
            in their place is no error.
    """
    wanted, actual = _pair(expected, heard, language)
    unjudged = frozenset(unjudged)
    return Difference(
        word_error_rate=_word_rate(wanted, actual, unjudged),
        character_error_rate=_letter_rate(wanted, actual, unjudged),
        changes=tuple(_changes(wanted, actual, unjudged)),
    )


def compare_letters(
    expected: str, heard: str, language: str = "en", *, unjudged: Collection[str] = ()
) -> LetterComparison:
    """Compare letter by letter; see `compare_texts`."""
    wanted, actual = _pair(expected, heard, language)
    letters, heard_letters = _letters(wanted), _letters(actual)
    spans = _letter_spans(wanted, frozenset(unjudged))
    edits = tuple(_judged_edits(letters, heard_letters, spans))
    num_expected = len(letters) - sum(end - begin for begin, end in spans)
    num_added = sum(edit.tag == "insert" for edit in edits)
    num_missing = sum(edit.tag == "delete" for edit in edits)
    return LetterComparison(
        expected=letters,
        heard=heard_letters,
        edits=edits,
        num_expected=num_expected,
        num_heard=num_expected + num_added - num_missing,
    )


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def text_errors(expected: str, heard: str, language: str = "en") -> tuple[float, float]:
    """Character and word error between 0 and 1.

    For languages written without spaces the character error is the one that means something.
    """
    wanted, actual = _pair(expected, heard, language)
    return (
        min(_letter_rate(wanted, actual, frozenset()), LARGEST_RATE),
        min(_word_rate(wanted, actual, frozenset()), LARGEST_RATE),
    )


def num_letter_errors(expected: str, heard: str, language: str = "en") -> int:
    """Letters to be changed, left out or put in, to come from one text to the other."""
    wanted, actual = _pair(expected, heard, language)
    return int(Levenshtein.distance(_letters(wanted), _letters(actual)))


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def _remembered_words(text: str, language: str) -> tuple[SpokenWord, ...]:
    return spoken_words(text, language)


def _pair(expected: str, heard: str, language: str) -> tuple[tuple[SpokenWord, ...], tuple[SpokenWord, ...]]:
    """Both as words, numbers and abbreviations in the readings in which they are most alike."""
    sides = (readings_of(expected, language), readings_of(heard, language))
    if all(len(readings) == 1 for side in sides for readings in side):
        return _remembered_words(expected, language), _remembered_words(heard, language)
    chosen = tuple([readings[0] for readings in side] for side in sides)
    for _ in range(_ROUNDS):
        for own, (side, readings) in enumerate(zip(chosen, sides, strict=True)):
            target = _letters(as_words(chosen[1 - own], language))
            _choose_readings(side, readings, target, language)
    return as_words(chosen[0], language), as_words(chosen[1], language)


def _choose_readings(
    chosen: list[Reading], readings: Sequence[tuple[Reading, ...]], target: str, language: str
) -> None:
    """Put those readings into `chosen` that bring it nearest to the letters of `target`."""
    for place, options in enumerate(readings):
        if len(options) > 1:
            costs = []
            for option in options:
                chosen[place] = option
                costs.append(Levenshtein.distance(_letters(as_words(chosen, language)), target))
            chosen[place] = options[costs.index(min(costs))]


def _letters(words: Sequence[SpokenWord]) -> str:
    return "".join(word.key for word in words)


def _letter_rate(wanted: Sequence[SpokenWord], actual: Sequence[SpokenWord], unjudged: frozenset[str]) -> float:
    return _rate(_letters(wanted), _letters(actual), _letter_spans(wanted, unjudged))


def _word_rate(wanted: Sequence[SpokenWord], actual: Sequence[SpokenWord], unjudged: frozenset[str]) -> float:
    spans = [(place, place + 1) for place, word in enumerate(wanted) if word.shown in unjudged]
    return _rate([word.key for word in wanted], [word.key for word in actual], spans)


def _letter_spans(words: Sequence[SpokenWord], unjudged: frozenset[str]) -> list[tuple[int, int]]:
    """Where the letters of the unjudged words are."""
    spans, begin = [], 0
    for word in words:
        if word.shown in unjudged:
            spans.append((begin, begin + len(word.key)))
        begin += len(word.key)
    return spans


def _rate(reference: Sequence[str], hypothesis: Sequence[str], unjudged_spans: Sequence[tuple[int, int]]) -> float:
    """Errors per element of the reference; those inside the spans, and the elements there, do not count."""
    num_judged = len(reference) - sum(end - begin for begin, end in unjudged_spans)
    if unjudged_spans and not num_judged:
        return 0.0
    num_errors = sum(1 for _ in _judged_edits(reference, hypothesis, unjudged_spans))
    if not num_judged:
        return float(bool(num_errors))
    return num_errors / num_judged


def _judged_edits(
    reference: Sequence[str], hypothesis: Sequence[str], unjudged_spans: Sequence[tuple[int, int]]
) -> Iterator[Editop]:
    for edit in Levenshtein.editops(reference, hypothesis):
        if not any(begin <= edit.src_pos <= end for begin, end in unjudged_spans):
            yield edit


def _changes(wanted: Sequence[SpokenWord], actual: Sequence[SpokenWord], unjudged: frozenset[str]) -> list[Change]:
    """Stretches of words; what is only spaced differently, and what cannot be judged, is equal."""
    steps = Levenshtein.opcodes([word.key for word in wanted], [word.key for word in actual])
    stretches: list[Change] = []
    # Words that were replaced and words that were added beside them are one change: neither says which is which.
    for _, run in itertools.groupby(steps, key=lambda step: step.tag == "equal"):
        parts = list(run)
        expected = wanted[parts[0].src_start : parts[-1].src_end]
        heard = actual[parts[0].dest_start : parts[-1].dest_end]
        is_unjudged = bool(expected) and all(word.shown in unjudged for word in expected)
        is_equal = is_unjudged or _letters(expected) == _letters(heard)
        kind = ChangeKind.EQUAL if is_equal else ChangeKind.REPLACED
        if not is_equal and not (expected and heard):
            kind = ChangeKind.ADDED if heard else ChangeKind.MISSING
        stretches.append(Change(kind=kind, expected=_shown(expected), heard=_shown(heard)))
    changes: list[Change] = []
    for stretch in stretches:
        if changes and changes[-1].kind is stretch.kind:
            last = changes.pop()
            stretch = replace(
                last,
                expected=f"{last.expected} {stretch.expected}".strip(),
                heard=f"{last.heard} {stretch.heard}".strip(),
            )
        changes.append(stretch)
    return changes


def _shown(words: Sequence[SpokenWord]) -> str:
    return " ".join(word.shown for word in words)


def _sentence_of(change: Change) -> str:
    expected, heard = _quoted(change.expected), _quoted(change.heard)
    if change.kind is ChangeKind.ADDED:
        return f"heard {heard}, which the text does not say"
    if change.kind is ChangeKind.MISSING:
        return f"the text says {expected}, which was not heard"
    return f"heard {heard} where the text says {expected}"


def _quoted(text: str) -> str:
    words = text.split()
    return f"'{text}'" if len(words) <= _MOST_QUOTED_WORDS else f"'{' '.join(words[:_MOST_QUOTED_WORDS])} …'"
