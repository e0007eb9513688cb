"""What of a text a voice can say: letters, digits and the signs that are read as words.

Everything else costs as much time as words do, and is heard as noise at best.
"""

from __future__ import annotations

import unicodedata

MAX_MARKS = 3
"""Marks on one letter that some script needs, such as Vietnamese or pointed Hebrew."""

MAX_UNSAID = 100
"""Characters that nothing can be made of, beyond one for each that can be said: a line of dashes, dots, emoji."""

_INVISIBLE_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
"""Fillers of Hangul, which count as letters."""


def is_sayable(text: str) -> bool:
    """Whether there is anything to say in it."""
    return any(map(_is_said, text))


def count_sayable(text: str) -> tuple[int, int]:
    """How many characters can be said, and how many are neither that nor space nor marks that belong to a letter."""
    num_said = num_unsaid = num_marks = 0
    for character in text:
        if unicodedata.category(character)[0] == "M" and num_said and num_marks < MAX_MARKS:
            num_marks += 1
        elif _is_said(character):
            num_said, num_marks = num_said + 1, 0
        elif not character.isspace():
            num_unsaid += 1
    return num_said, num_unsaid


def _is_said(character: str) -> bool:
    category = unicodedata.category(character)
    return (category[0] in "LN" or category in ("Sc", "Sm")) and character not in _INVISIBLE_LETTERS
