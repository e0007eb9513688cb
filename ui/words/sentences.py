"""What `backend` and `training` say, in the language of the page.

Their errors and findings are finished English sentences, which logs and programs read as they are. Only where the page
shows one, it is looked up here: `sentences.<language>/*.toml` have the English sentences with `{}` for each value, and
`{#}` for a value that is a number. A sentence that is not there is shown as it is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from ui.words.words import FIRST_LANGUAGE, spoken_language

_NUM_REMEMBERED = 4000
_MOST_PARTS = 12
"""What has more parts is not taken apart."""

_LONGEST = 3000
"""Characters; what is longer is no sentence, and would take long to match."""

_WORDS_FILE = "words"
"""Single words, such as states; they are translated only where a sentence asks for it: `{:word}`."""

_SEPARATORS = ("; ", ", ", " and ")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=\S)")
_PLACE = re.compile(r"\{(#?)\}")


@dataclass(frozen=True)
class Reading:
    """A text in the other language.

    Attributes:
        known: letters of the English text that the table has, 0 where none.
        whole: those of them that one line of the table has.
    """

    text: str
    known: int = 0
    whole: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Of two readings the one with the higher rank is meant."""
        return self.known, self.whole


@dataclass(frozen=True)
class Template:
    """One sentence with places for values.

    Attributes:
        pattern: matches the whole English sentence; its groups are the values.
        clue: the longest piece of text without a value, which every such sentence has.
        known: letters that belong to no value.
        wording: format string for the values, in order or by number.
    """

    pattern: re.Pattern[str]
    clue: str
    known: int
    wording: str

    @classmethod
    def read(cls, english: str, wording: str) -> Template:
        """Compile one line of the table."""
        pieces = _PLACE.sub("{}", english).split("{}")
        values = [r"(\S*\d\S*?)" if mark else "(.*?)" for mark in _PLACE.findall(english)]
        pattern = "".join(re.escape(piece) + value for piece, value in zip(pieces, [*values, ""], strict=True))
        return cls(re.compile(pattern, re.DOTALL), max(pieces, key=len), sum(map(_num_letters, pieces)), wording)


class _Value(str):
    """A value in a sentence: translated if it is a sentence itself, or with `{:word}` a word of the table."""

    word: str
    reading: Reading

    @classmethod
    def read(cls, found: str, language: str) -> _Value:
        value = cls(found)
        value.word = _words(language).get(found, found)
        value.reading = _read_value(found, language)
        return value

    def __format__(self, spec: str) -> str:
        return self.word if spec == "word" else format(self.reading.text, spec)


def translated(sentence: object) -> str:
    """A sentence of `backend` or `training` in the language of the request that is being answered."""
    language = spoken_language()
    text = str(sentence)
    if language == FIRST_LANGUAGE or len(text) > _LONGEST:
        return text
    return (_read_value if " " in text else _read)(text, language).text


@cache
def sentences(language: str) -> Mapping[str, str]:
    """Every English sentence with its wording; empty for a language without a table."""
    return {
        english: wording
        for name, table in sentence_tables(language).items()
        if name != _WORDS_FILE
        for english, wording in table.items()
    }


@cache
def sentence_tables(language: str) -> Mapping[str, Mapping[str, str]]:
    """The files of a language by their name, such as `runs`."""
    files = sorted(Path(__file__).parent.glob(f"sentences.{language}/*.toml"))
    return {file.stem: tomllib.loads(file.read_text(encoding="utf-8")) for file in files}


def _words(language: str) -> Mapping[str, str]:
    return sentence_tables(language).get(_WORDS_FILE, {})


@cache
def _templates(language: str) -> tuple[Template, ...]:
    return tuple(Template.read(*line) for line in sentences(language).items() if _PLACE.search(line[0]))


def _num_letters(text: str) -> int:
    return sum(map(str.isalpha, text))


@lru_cache(_NUM_REMEMBERED)
def _read(sentence: str, language: str) -> Reading:
    """Of all readings the one of which the table knows the most."""
    if (fixed := sentences(language).get(sentence)) is not None:
        return Reading(fixed, _num_letters(sentence), _num_letters(sentence))
    readings = [Reading(sentence), *_fitting(sentence, language)]
    readings.append(_read_each(_SENTENCE_END.split(sentence), " ", language))
    return max(readings, key=lambda reading: reading.rank)


def _fitting(sentence: str, language: str) -> list[Reading]:
    """What each template makes of it that it fits."""
    found = []
    for template in _templates(language):
        if template.clue in sentence and (match := template.pattern.fullmatch(sentence)) is not None:
            values = [_Value.read(value, language) for value in match.groups()]
            known = template.known + sum(value.reading.known for value in values)
            found.append(Reading(template.wording.format(*values), known, template.known))
    return found


@lru_cache(_NUM_REMEMBERED)
def _read_value(value: str, language: str) -> Reading:
    """What is inserted: names and numbers stay as they are, sentences and lists of them do not."""
    whole = value.strip()
    if " " not in whole:
        return Reading(value)
    readings = [_read(whole, language)]
    readings += [_read_each(whole.split(one), one, language) for one in _SEPARATORS]
    best = max(readings, key=lambda reading: reading.rank)
    return Reading(value.replace(whole, best.text), best.known, best.whole)


def _read_each(parts: Sequence[str], separator: str, language: str) -> Reading:
    """Several in a row, neighbours together if that makes more sense; nothing where one of them is unknown."""
    ends: list[Reading] = [Reading("")]
    if not 1 < len(parts) <= _MOST_PARTS:
        return ends[0]
    for end in range(1, len(parts) + 1):
        best = Reading("")
        for start in range(end):
            if (start and not ends[start].known) or end - start == len(parts):
                continue
            one = _read_value(separator.join(parts[start:end]), language)
            if one.known and ends[start].known + one.known > best.known:
                joint = separator.replace("and", _words(language).get("and", "and")) if start else ""
                best = Reading(f"{ends[start].text}{joint}{one.text}", ends[start].known + one.known)
        ends.append(best)
    return ends[-1]
