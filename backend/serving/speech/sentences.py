"""Cut a long text into pieces a model can speak in one breath, at sentence ends where there are any.

Long takes drift: pace rises and timbre wanders after half a minute. SegmentQueue of a few sentences do not, and
they bound the memory and the damage of a take that goes wrong.
"""

from __future__ import annotations

import re
import unicodedata

MAX_PIECE_LENGTH = 240
"""Length of a piece, about 15 s of speech; sentences are packed up to this."""

WIDE_CHARACTER = 3
"""Length of a Chinese, Japanese or Korean character, which takes as long to say as three letters."""

ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof st jr sr vs etc inc ltd co corp dept fig no nos vol pp ed eds approx est ca cf al
    eg ie gen col capt lt sgt rev hon pres gov sen rep jan feb mar apr jun jul aug sep sept oct nov dec
    mon tue wed thu fri sat sun bzw usw nr str hr fr abs z.b d.h u.a e.g i.e a.m p.m u.s u.k ph.d sra sr
    av pág núm art
    """.split()
)
"""Words whose full stop does not end a sentence, in lower case and without it."""

_SENTENCE_END = re.compile(r"""(?:[.!?…]+["'”’»)\]]*(?=\s)|[。！？；]+["'”’」』）]*|\n\s*\n)""")
_CLAUSE_END = re.compile(r"[,;:–—]+[\"'”’»)\]]*(?=\s)|[、，；：]+")
_LAST_WORD = re.compile(r"([^\s(\[\"'“‘«]+)\.$")


def split_sentences(text: str) -> list[str]:
    """Sentences in order, stripped, none empty; a paragraph break ends a sentence too.

    A full stop ends none after an abbreviation or an initial ("Dr. J. Smith"), inside a number ("3.5") or an
    ellipsis followed by a small letter.
    """
    sentences, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        if _is_inside_sentence(text, start, match):
            continue
        sentences.append(text[start : match.end()])
        start = match.end()
    sentences.append(text[start:])
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def split_text(text: str, longest: int = MAX_PIECE_LENGTH) -> list[str]:
    """SegmentQueue to speak one after another, each of whole sentences where they fit.

    Length counts letters, wide characters more (`measure`). Sentences longer than `longest` are cut at clauses,
    then between words, then anywhere. Nothing but white space is lost.

    Returns:
        No piece when the text holds nothing but white space.
    """
    pieces: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        current = ""
        for part in (part for sentence in split_sentences(paragraph) for part in _fit(sentence, longest)):
            joined = f"{current}{_gap(current)}{part}"
            if measure(joined) <= longest:
                current = joined
            else:
                pieces.append(current)
                current = part
        if current:
            pieces.append(current)
    return pieces


def measure(text: str) -> int:
    """How long a text is to say, in letters."""
    return sum(WIDE_CHARACTER if _is_wide(character) else 1 for character in text)


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in ("W", "F")


def _gap(text: str) -> str:
    """What stands between a sentence and the next: nothing after Chinese or Japanese punctuation."""
    return "" if not text or _is_wide(text[-1]) else " "


def _is_inside_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    stop, following = match.group(), text[match.end() :].lstrip()
    if stop.startswith((".", "…")) and following[:1].islower():
        # "approx. ten", "well... maybe": what goes on in lower case is the same sentence.
        return True
    if stop != ".":
        return False
    word = _LAST_WORD.search(text[start : match.end()])
    if word is None:
        return False
    bare = word.group(1).lower()
    is_initial = len(bare) == 1 and bare.isalpha() and bare != "i"
    return bare in ABBREVIATIONS or is_initial


def _fit(sentence: str, longest: int) -> list[str]:
    """Cut one sentence into parts of at most `longest`, at the gentlest place there is."""
    parts = []
    while (most := _max_characters(sentence, longest)) < len(sentence):
        cut = _last_cut(sentence, most)
        parts.append(sentence[:cut].strip())
        sentence = sentence[cut:].strip()
    return [*parts, sentence] if sentence else parts


def _max_characters(sentence: str, longest: int) -> int:
    """How many characters fit, at least one; looks no further than they go."""
    length = 0
    for index, character in enumerate(sentence):
        length += measure(character)
        if length > longest:
            return max(index, 1)
    return len(sentence)


def _last_cut(sentence: str, longest: int) -> int:
    """Where to cut off at most `longest` characters."""
    clauses = [match.end() for match in _CLAUSE_END.finditer(sentence, 0, longest + 1) if match.end() <= longest]
    # A clause in the first third would leave a stump; a space late in the piece is better.
    if clauses and clauses[-1] > longest // 3:
        return clauses[-1]
    space = sentence.rfind(" ", 1, longest + 1)
    return space if space > 0 else longest
