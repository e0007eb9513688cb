"""Normalises text to the characters that the embedded checkpoint knows: letters and some punctuation."""

from __future__ import annotations

import re
import string
import unicodedata

from training.pretrain.corpus import number_words

ALPHABET = frozenset(string.ascii_letters + " .,?!'-:;")
"""The characters of corpus texts."""

MAX_WORD_LETTERS = 18

_ABBREVIATIONS = {
    "Mr.": "Mister",
    "Mrs.": "Missus",
    "Ms.": "Miss",
    "Dr.": "Doctor",
    "St.": "Saint",
    "etc.": "and so on",
    "vs.": "versus",
    "e.g.": "for example",
    "i.e.": "that is",
}
_ABBREVIATION = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, _ABBREVIATIONS)) + ")")
_PLAIN = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "`": "'", "\u2013": "-", "\u2014": "--", "\u2026": "...", '"': " "}
)
_NUMBER = re.compile(r"(\$?)(\d{1,3}(?:,\d{3})+|\d+)(st|nd|rd|th|%)?(?![\d.]\d)")
_MAX_YEAR = 2099


def normalise(text: str) -> str | None:
    """Rewrite a text with the characters of `ALPHABET`; None if that is not possible.

    Digits become words, quotation marks are removed, dashes between words become commas.
    """
    text = _ABBREVIATION.sub(lambda found: _ABBREVIATIONS[found[0]], text.translate(_PLAIN))
    text = _NUMBER.sub(_say_number, text).replace("&", " and ")
    if not text.isascii():
        text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    text = re.sub(r"\.{2,}", ", ", text)
    text = re.sub(r"\s*--+\s*|\s+-\s+", ", ", text)
    text = re.sub(r"(?<![A-Za-z])['-]+|['-]+(?![A-Za-z])", " ", text)
    text = re.sub(r"\s+(?=[.,?!:;])", "", " ".join(text.split()))
    text = re.sub(r"[,:;]+(?=[.,?!:;])", "", text)
    text = re.sub(r"([.?!])[.,?!:;]+", r"\1", text).strip(" ,:;")
    return text if text and text[0].isalpha() and ALPHABET.issuperset(text) else None


def is_pronounceable(text: str) -> bool:
    """Whether every word looks like one: no acronyms, initials, code or runs without a vowel."""
    return all(map(_is_word, re.findall(r"[A-Za-z]+(?:'[A-Za-z]+)*", text)))


def key(text: str) -> str:
    """A key that is equal for texts that differ only in case, punctuation or spacing."""
    return " ".join(re.findall(r"[a-z]+", text.lower().replace("'", "")))


def _is_word(word: str) -> bool:
    letters = word.replace("'", "")
    if len(letters) == 1:
        return letters in "aAIO"
    has_vowel = any(letter in "aeiouyAEIOUY" for letter in letters)
    return has_vowel and len(letters) <= MAX_WORD_LETTERS and (letters[1:].islower() or "'" in word)


def _say_number(found: re.Match[str]) -> str:
    dollar, digits, suffix = found.groups()
    number = int(digits.replace(",", ""))
    if number >= number_words.LIMIT:
        return found[0]
    if suffix in ("st", "nd", "rd", "th"):
        return number_words.ordinal(number)
    is_year = len(digits) == 4 and 1100 <= number <= _MAX_YEAR and not dollar and not suffix
    words = number_words.year(number) if is_year else number_words.cardinal(number)
    unit = " dollars" if dollar else " percent" if suffix else ""
    return words + unit
