"""Rules for names of voices: any script, and valid as a file name on any system."""

from __future__ import annotations

import unicodedata

MAX_NAME_LENGTH = 64
_JOINERS = frozenset(" -_.'\u2019&()")


def is_part_of_name(character: str) -> bool:
    """Whether a name may contain it: letters, marks (accents, vowel signs of many scripts), numbers, word joiners."""
    return unicodedata.category(character)[0] in "LMN" or character in _JOINERS


def begins_name(character: str) -> bool:
    """Whether a name may begin with it: a letter or a number."""
    return unicodedata.category(character)[0] in "LN"
