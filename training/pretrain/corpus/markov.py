"""New sentences from old ones: an order-2 Markov chain over words."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

_BOUNDARY = ""
_MAX_WORDS = 26


class MarkovChain:
    """Follows pairs of words through the sentences it was built from, punctuation attached to its word."""

    def __init__(self, sentences: Iterable[str]) -> None:
        followers: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for sentence in sentences:
            before, last = _BOUNDARY, _BOUNDARY
            for word in [*sentence.split(), _BOUNDARY]:
                followers[before, last].append(word)
                before, last = last, word
        self._followers = dict(followers)

    def sentence(self, random_numbers: random.Random) -> str:
        """Walk from a sentence's start to its end; a walk that gets too long is cut and closed."""
        words: list[str] = []
        before, last = _BOUNDARY, _BOUNDARY
        while len(words) < _MAX_WORDS:
            before, last = last, random_numbers.choice(self._followers[before, last])
            if last == _BOUNDARY:
                return " ".join(words)
            words.append(last)
        return " ".join(words).rstrip(",:;.?!") + "."
