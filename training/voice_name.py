"""What a voice may be called: a name that can be written in any script, and in a file of any system."""

from __future__ import annotations

import unicodedata

MAX_NAME_LENGTH = 64
_JOINERS = frozenset(" -_.'\u2019&()")


def is_part_of_name(character: str) -> bool:
    """Whether a name may hold it: letters, marks (accents, vowel signs of many scripts), numbers, joiners of words."""
    return unicodedata.category(character)[0] in "LMN" or character in _JOINERS


def begins_name(character: str) -> bool:
    """Whether a name may begin with it: a letter or a number."""
    return unicodedata.category(character)[0] in "LN"
