"""Whether texts are in English, as far as the dictionary of the listener tells that knows English only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
MIN_WORDS = 12
"""Fewer may be names, and tell nothing."""
MIN_SHARE = 0.85
"""Of the words of a passage in German the dictionary has 41 %, in Portuguese 52, in French 66, in Spanish 69 and in
Italian 76 (short ones are often English, too, or names); of English ones full of foreign names 92 %, of plain ones all.
"""


def reads_as_english(texts: Iterable[str]) -> bool:
    """Whether all texts together may be English; true as well where they are too few to say."""
    words = [word.lower().replace("\u2019", "'") for text in texts for word in _WORD.findall(text)]
    # Scripts without spaces make one word of a sentence.
    if any(not word.isascii() and len(word) >= MIN_WORDS for word in words):
        return False
    return len(words) < MIN_WORDS or sum(word in _dictionary() for word in words) >= MIN_SHARE * len(words)


@cache
def _dictionary() -> frozenset[str]:
    # Here: who does not ask need not load it.
    from pocketsphinx import get_model_path  # noqa: PLC0415 - see above

    path = Path(get_model_path("en-us"), "cmudict-en-us.dict")
    with path.open(encoding="utf-8") as lines:
        return frozenset(line.partition(" ")[0].partition("(")[0] for line in lines)
