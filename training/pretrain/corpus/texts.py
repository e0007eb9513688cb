"""An endless stream of new English sentences: the texts of the corpus.

Speech is cheap here, and a small network memorises repeated sentences, so no sentence should occur twice. Every text is
a function of (seed, index), in any order of access.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable

from training.pretrain.corpus import number_words
from training.pretrain.corpus.normalise import ALPHABET, key
from training.pretrain.corpus.phrase_bank import TEMPLATES, blanks
from training.pretrain.corpus.text_sources import TextSources

MIN_LETTERS, MAX_LETTERS, MAX_LONG_LETTERS = 8, 110, 160

# The kinds of each block of 20 consecutive texts; the order within a block is random.
BLOCK = (
    *("fortune",) * 2,
    *("markov",) * 6,
    *("words",) * 3,
    *("everyday",) * 2,
    *("number",) * 1,
    *("question",) * 1,
    *("name",) * 1,
    *("list",) * 1,
    *("command",) * 1,
    *("short",) * 1,
    *("long",) * 1,
)
# One key in 16 is reserved for held-out texts, so that the streams do not overlap.
_HELD_OUT_ONE_IN = 16
# Share of texts without capitals and full stop, as users sometimes write.
_CASUAL_SHARE = 0.04
# Share of the chain's sentences in which a word is replaced from the dictionary, since all its word triples are known.
_SWAP_SHARE = 0.6


class TextStream:
    """Texts by index. Two streams with other seeds differ; training and held-out streams never share a text."""

    def __init__(self, sources: TextSources, seed: int, *, held_out: bool = False) -> None:
        self._sources = sources
        self._seed = seed
        self._held_out = held_out
        self._known = frozenset(map(key, sources.sentences))
        order = random.Random(f"order {seed}")
        fortunes = [sentence for sentence in sources.sentences if self._fits(sentence, "fortune")]
        words = [word for word in sources.words if self._fits(word, "short")]
        self._fortunes = order.sample(fortunes, len(fortunes))
        self._words = order.sample(words, len(words))

    def text(self, index: int) -> str:
        """The text at `index`, of characters in `normalise.ALPHABET` only."""
        block, slot = divmod(index, len(BLOCK))
        kinds = random.Random(f"{self._seed} block {block}").sample(BLOCK, len(BLOCK))
        kind = kinds[slot]
        once = self._said_once(kind, block * BLOCK.count(kind) + kinds[:slot].count(kind))
        if once is not None:
            return once
        drawn = random.Random(f"{self._seed} {'held out' if self._held_out else 'training'} text {index}")
        while True:
            text = self._casual(self._made(kind, drawn), drawn)
            if self._fits(text, kind):
                return text

    def _said_once(self, kind: str, number: int) -> str | None:
        """Fortunes and single words, drawn without replacement."""
        if kind == "fortune" and number < len(self._fortunes):
            return self._fortunes[number]
        if kind == "short" and number % 2 and number // 2 < len(self._words):
            word = self._words[number // 2].capitalize()
            return word + (".", "", "!", "?")[number // 2 % 4]
        return None

    def _fits(self, text: str, kind: str) -> bool:
        """Whether a text is acceptable: speakable, of the right length, and in this stream's share of all texts."""
        low, high = {"short": (2, 40), "long": (80, MAX_LONG_LETTERS)}.get(kind, (MIN_LETTERS, MAX_LETTERS))
        text_key = key(text)
        return (
            low <= len(text) <= high
            and ALPHABET.issuperset(text)
            and text_key not in self._sources.forbidden
            and is_held_out(text) == self._held_out
            and (kind != "markov" or text_key not in self._known)
        )

    def _made(self, kind: str, numbers: random.Random) -> str:
        makers = {"markov": self._markov, "words": self._word_string, "long": self._long}
        return makers[kind](numbers) if kind in makers else self._filled(kind, numbers)

    def _markov(self, numbers: random.Random) -> str:
        sentence = self._sources.chain.sentence(numbers)
        if numbers.random() >= _SWAP_SHARE:
            return sentence
        plain = [found.span() for found in re.finditer(r"(?<![\w'-])[a-z]{3,}(?![\w'-])", sentence)]
        if not plain:
            return sentence
        start, stop = numbers.choice(plain)
        return sentence[:start] + numbers.choice(self._sources.words) + sentence[stop:]

    def _word_string(self, numbers: random.Random) -> str:
        words = [numbers.choice(self._sources.words) for _ in range(numbers.randint(2, 8))]
        return numbers.choice((" ", " ", ", ")).join(words).capitalize() + numbers.choice((".", ".", ".", "", "?"))

    def _long(self, numbers: random.Random) -> str:
        """Two sentences joined to one."""
        halves = [numbers.choice((self._markov, self._everyday))(numbers) for _ in range(2)]
        first, second = halves[0].rstrip(".?!"), halves[1]
        if not re.match(r"(I|I'\w+|[A-Z]\w+ [A-Z].*)\b", second) and second.split(" ")[0] not in blanks()["name"]:
            second = second[0].lower() + second[1:]
        link = numbers.choice(blanks()["link"])
        return numbers.choice((f"{first}, {link} {second}", f"{first}; {second}", f"{first} {link} {second}"))

    def _everyday(self, numbers: random.Random) -> str:
        return self._filled("everyday", numbers)

    def _filled(self, kind: str, numbers: random.Random) -> str:
        """A template with its blanks filled in; kinds without templates use those of another kind."""
        borrowed = {"short": "answer", "fortune": "everyday"}.get(kind, kind)  # once all fortunes are used
        template = numbers.choice(TEMPLATES[borrowed])
        text = re.sub(r"\{(\w+)\}", lambda found: self._blank(found[1], numbers), template)
        text = re.sub(r"\b([Aa]) (?=[aeiouAEIOU])", r"\1n ", text)
        return re.sub(r"(^|[.?!] )([a-z])", lambda found: found[1] + found[2].upper(), text)

    def _blank(self, name: str, numbers: random.Random) -> str:
        if name in blanks():
            return numbers.choice(blanks()[name])
        if name == "word":
            return numbers.choice(self._sources.words)
        return _NUMBER_BLANKS[name](numbers)

    def _casual(self, text: str, numbers: random.Random) -> str:
        return text.lower().rstrip(".") if numbers.random() < _CASUAL_SHARE else text


def is_held_out(text: str) -> bool:
    """Whether a text belongs to the held-out streams, with any seed."""
    return hashlib.sha256(key(text).encode()).digest()[0] % _HELD_OUT_ONE_IN == 0


def _clock(numbers: random.Random) -> str:
    hour = number_words.cardinal(numbers.randint(1, 12))
    minute = numbers.choice(("o'clock", "thirty", "fifteen", number_words.cardinal(numbers.randint(10, 59))))
    return numbers.choice((f"{hour} {minute}", f"half past {hour}", f"a quarter to {hour}"))


_NUMBER_BLANKS: dict[str, Callable[[random.Random], str]] = {
    "count": lambda numbers: number_words.cardinal(numbers.randrange(10 ** numbers.choice((1, 2, 3, 3, 4, 5)))),
    "small": lambda numbers: number_words.cardinal(numbers.randint(2, 99)),
    "year": lambda numbers: number_words.year(numbers.randint(1200, 2060)),
    "rank": lambda numbers: number_words.ordinal(numbers.randint(1, 31)),
    "digits": lambda numbers: number_words.digits(f"{numbers.randrange(10 ** numbers.randint(3, 5)):03d}"),
    "clock": _clock,
}
