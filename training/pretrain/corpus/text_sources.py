"""The sources of the corpus texts: Debian's fortunes and its word list."""

from __future__ import annotations

import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from training.model.project import PROJECT_FOLDER
from training.pretrain.corpus.normalise import is_pronounceable, key, normalise
from training.pretrain.errors import CorpusError

FORTUNES = Path("/usr/share/games/fortunes")
WORD_LIST = Path("/usr/share/dict/american-english")
EVALUATION_SENTENCES = PROJECT_FOLDER / "assets" / "evaluation" / "sentences.txt"

# Pictures, and words that are not English.
_SKIPPED_FORTUNES = ("ascii-art", "translate-me")
_MIN_LETTERS, _MAX_LETTERS = 8, 160
# Below this share of dictionary words a line is dialect, code or another language.
_MIN_KNOWN_SHARE = 0.8

_BOUNDARY = ""
_MAX_WORDS = 26


class MarkovChain:
    """New sentences from old ones: an order-2 Markov chain over words, punctuation attached to its word."""

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


@dataclass(frozen=True, kw_only=True)
class TextSources:
    """The source texts, in a fixed order."""

    sentences: tuple[str, ...]
    """Clean sentences of the fortunes, each once."""
    words: tuple[str, ...]
    """Lower-case dictionary words of 2 to 12 letters."""
    forbidden: frozenset[str]
    """Keys of the evaluation sentences."""
    chain: MarkovChain
    """Built from the sentences."""
    digests: dict[str, str]
    """Hashes of the files for the manifest: name -> the start of a SHA-256."""


def load_text_sources(
    fortunes: Path = FORTUNES, word_list: Path = WORD_LIST, evaluation: Path = EVALUATION_SENTENCES
) -> TextSources:
    """Read and clean the sources.

    Raises:
        CorpusError: a source is not installed; names its Debian package.
    """
    files = _fortune_files(fortunes)
    if not word_list.is_file():
        raise CorpusError(f"{word_list} is missing. Install it with: apt-get install wamerican")
    if not evaluation.is_file():
        raise CorpusError(f"{evaluation} is missing. Without it, the corpus could contain evaluation sentences.")
    dictionary = frozenset(word_list.read_text(encoding="utf-8").split())
    sentences = {key(sentence): sentence for sentence in _sentences(files, dictionary)}
    plain = (word for word in dictionary if word.isascii() and word.isalpha() and word.islower())
    judged_by = evaluation.read_text(encoding="utf-8").splitlines()
    return TextSources(
        sentences=tuple(sentences.values()),
        words=tuple(sorted(word for word in plain if 2 <= len(word) <= 12 and is_pronounceable(word))),
        forbidden=frozenset(map(key, judged_by)),
        chain=MarkovChain(sentences.values()),
        digests={"fortunes": _digest(files), "wamerican": _digest([word_list])},
    )


def _fortune_files(folder: Path) -> list[Path]:
    """Text files only, without the .dat index and .u8 link of each."""
    files = sorted(path for path in folder.glob("*") if not path.suffix and path.name not in _SKIPPED_FORTUNES)
    if not files:
        raise CorpusError(f"{folder} holds no fortunes. Install them with: apt-get install fortunes")
    return files


def _sentences(files: list[Path], dictionary: frozenset[str]) -> Iterator[str]:
    for path in files:
        text = re.sub(r".\x08", "", path.read_text(encoding="utf-8", errors="replace"))
        for fortune in text.split("\n%\n"):
            yield from filter(lambda sentence: _is_english(sentence, dictionary), _split(fortune))


def _split(fortune: str) -> Iterator[str]:
    """The sentences of one fortune, without its attribution."""
    lines = [line for line in fortune.splitlines() if not line.strip().startswith("--")]
    for piece in re.split(r"(?<=[.!?])[\"')]*\s+(?=[\"'A-Z])|\n\s*\n", "\n".join(lines)):
        sentence = normalise(piece)
        # Sentence fragments would not teach pauses.
        if sentence and sentence[0].isupper() and sentence[-1] in ".?!":
            yield sentence


def _is_english(sentence: str, dictionary: frozenset[str]) -> bool:
    if not _MIN_LETTERS <= len(sentence) <= _MAX_LETTERS or not is_pronounceable(sentence):
        return False
    words = re.findall(r"[A-Za-z]+(?:'[A-Za-z]+)*", sentence)
    num_known = sum(word in dictionary or word.lower() in dictionary for word in words)
    return len(words) >= 2 and num_known >= _MIN_KNOWN_SHARE * len(words)


def _digest(files: list[Path]) -> str:
    total = hashlib.sha256()
    for path in files:
        total.update(path.read_bytes())
    return total.hexdigest()[:16]
