"""A text that came along, laid over what was heard: the words of the one, the times of the other."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rapidfuzz.distance import Levenshtein

from backend.transcription.transcript import Word

# Scripts that put no space between words are taken sign by sign.
_UNSPACED = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0eff])")


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """The words of a text with times.

    Attributes:
        words: all words of the text, in its order. Those that were not heard have a probability of 0, and a place
            between their neighbours.
        agreement: share of words on which text and listener agree, 0 to 1; what one has and the other has not counts.
    """

    words: tuple[Word, ...]
    agreement: float


def align_text(text: str, heard: Sequence[Word]) -> Alignment:
    """Give each word of `text` the time at which it was heard.

    Args:
        text: what somebody wrote down about a recording.
        heard: what a transcriber heard in it, in order.
    """
    words = _split(text)
    keys, heard_keys = [_key(word.text) for word in words], [_key(word.text) for word in heard]
    placed: list[Word] = []
    for step in Levenshtein.opcodes(keys, heard_keys):
        own = words[step.src_start : step.src_end]
        theirs = heard[step.dest_start : step.dest_end]
        if step.tag == "equal":
            placed += [_at(word, other, other.probability) for word, other in zip(own, theirs, strict=True)]
        elif step.tag == "replace":
            placed += [_at(word, other, _likeness(word, other)) for word, other in zip(own, theirs, strict=True)]
        elif own:
            before = heard[step.dest_start - 1].end_seconds if step.dest_start else 0.0
            after = heard[step.dest_start].start_seconds if step.dest_start < len(heard) else before
            placed += _spread(own, min(before, after), after)
    longest = max(len(keys), len(heard_keys))
    agreement = 1.0 - Levenshtein.distance(keys, heard_keys) / longest if longest else 1.0
    return Alignment(words=tuple(placed), agreement=agreement)


def _split(text: str) -> list[Word]:
    """Divide a text into words that have no time yet."""
    words: list[Word] = []
    for chunk in text.split():
        parts = [part for part in _UNSPACED.split(chunk) if part]
        for index, part in enumerate(parts):
            if words and index and not _key(part):
                # A mark of punctuation belongs to the sign before it.
                words[-1] = replace(words[-1], text=words[-1].text + part)
            else:
                words.append(
                    Word(text=part, start_seconds=0.0, end_seconds=0.0, probability=0.0, has_space_before=index == 0)
                )
    return words


def _key(text: str) -> str:
    """What two ways to write a word have in common: letters and digits, without case."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(sign for sign in folded if unicodedata.category(sign)[0] in "LNM")


def _likeness(word: Word, other: Word) -> float:
    """How sure it is that one word was said where another was heard."""
    return other.probability * float(Levenshtein.normalized_similarity(_key(word.text), _key(other.text)))


def _at(word: Word, other: Word, probability: float) -> Word:
    return replace(word, start_seconds=other.start_seconds, end_seconds=other.end_seconds, probability=probability)


def _spread(words: Sequence[Word], start_seconds: float, end_seconds: float) -> list[Word]:
    """Put words nobody heard side by side, each as long as it has letters."""
    lengths = [len(word.text) for word in words]
    step = (end_seconds - start_seconds) / sum(lengths)
    placed, start = [], start_seconds
    for word, length in zip(words, lengths, strict=True):
        placed.append(replace(word, start_seconds=start, end_seconds=start + step * length, probability=0.0))
        start += step * length
    return placed
