"""Two texts of the same speech compared: what differs, and how much, when spelling and punctuation do not count."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import jiwer
from whisper.normalizers import BasicTextNormalizer, EnglishTextNormalizer

# Languages whose texts have no spaces are compared sign by sign.
_UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})


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
    """How far a text is from the expected one; 0 is equal, and what is added can make rates exceed 1."""

    word_error_rate: float
    character_error_rate: float
    changes: tuple[Change, ...]


_KINDS = {
    "equal": ChangeKind.EQUAL,
    "substitute": ChangeKind.REPLACED,
    "delete": ChangeKind.MISSING,
    "insert": ChangeKind.ADDED,
}


def compare_texts(expected: str, heard: str, language: str = "en") -> Difference:
    """Compare what was heard with what was expected, after Whisper's normalisation for the language."""
    wanted, actual = normalise_text(expected, language), normalise_text(heard, language)
    if not wanted or not actual:
        rate = 0.0 if wanted == actual else 1.0
        kind = ChangeKind.MISSING if wanted else ChangeKind.ADDED
        changes: tuple[Change, ...] = (Change(kind=kind, expected=wanted, heard=actual),) if rate else ()
        return Difference(word_error_rate=rate, character_error_rate=rate, changes=changes)
    words = jiwer.process_words(wanted, actual)
    reference, hypothesis = words.references[0], words.hypotheses[0]
    changes = tuple(
        Change(
            kind=_KINDS[chunk.type],
            expected=" ".join(reference[chunk.ref_start_idx : chunk.ref_end_idx]),
            heard=" ".join(hypothesis[chunk.hyp_start_idx : chunk.hyp_end_idx]),
        )
        for chunk in words.alignments[0]
    )
    return Difference(
        word_error_rate=float(words.wer),
        character_error_rate=float(jiwer.process_characters(wanted, actual).cer),
        changes=changes,
    )


def normalise_text(text: str, language: str = "en") -> str:
    """Bring a text to the form in which error rates are counted: no case, no punctuation, numbers as digits."""
    words = str(_normaliser_for(language)(text)).split()
    # What is left of an ellipsis, which Whisper writes for silence, is not a word.
    return " ".join(word for word in words if any(sign.isalnum() for sign in word))


@cache
def _normaliser_for(language: str) -> BasicTextNormalizer | EnglishTextNormalizer:
    if language == "en":
        return EnglishTextNormalizer()
    return BasicTextNormalizer(split_letters=language in _UNSPACED_LANGUAGES)
