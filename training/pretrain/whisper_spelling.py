"""How the transcriber spells: Whisper's own English tokens, but only the first few hundred of them.

A text becomes tokens for the decoder and letters for the encoder, and every token knows which letters it says, so
that where a letter is heard tells where its token is.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import tiktoken
import torch
from torch import Tensor
from whisper.tokenizer import Tokenizer, get_tokenizer

from training.pretrain.whisper_job import ENGLISH_VOCABULARY

BLANK, SPACE = 0, 1
NUM_LETTERS = 28
"""Nothing, a gap between words, and a to z."""

SECONDS_PER_TIMESTAMP = 0.02
# Whisper's decoding asks for the first time stamp within the first second.
_LATEST_FIRST_SECONDS = 1.0


class Said(NamedTuple):
    """One utterance within a piece of sound."""

    text: str
    start_seconds: float
    end_seconds: float


class Spelled(NamedTuple):
    """What a piece of sound says, for both halves of the network."""

    letters: list[int]
    tokens: list[int]
    """What the decoder writes after its first token, in Whisper's numbers; the end of text included."""
    spans: list[tuple[int, int]]
    """Of each token, the letters it says; empty where it says none, at the place between letters where it belongs."""
    said: list[tuple[int, int]]
    """Of each utterance, its letters."""


class Spelling:
    """Turns texts into tokens, and Whisper's token numbers into rows of a table without the unused ones."""

    def __init__(self, num_text_tokens: int) -> None:
        self.whisper = whisper_tokenizer()
        full = self.whisper.encoding
        ranks = {piece: rank for piece, rank in full._mergeable_ranks.items() if rank < num_text_tokens}
        self._pieces = {rank: piece.decode("latin-1") for piece, rank in ranks.items()}
        self._encoding = tiktoken.Encoding(
            "restricted", pat_str=full._pat_str, mergeable_ranks=ranks, special_tokens={}
        )
        self.used = torch.tensor([*range(num_text_tokens), *range(self.whisper.eot, ENGLISH_VOCABULARY)])
        """Whisper's number of each row."""
        self._num_text_tokens = num_text_tokens

    def row(self, token: int) -> int:
        """The row of one of Whisper's tokens."""
        is_text = token < self._num_text_tokens
        assert is_text or token >= self.whisper.eot, f"token {token} is never written"
        return token if is_text else token - self.whisper.eot + self._num_text_tokens

    def rows(self, tokens: Sequence[int]) -> Tensor:
        """Rows of many tokens, int64."""
        return torch.tensor([self.row(token) for token in tokens], dtype=torch.int64)

    def spell(self, parts: Sequence[Said], *, timed: bool) -> Spelled:
        """What to write for what is said; with times, every utterance stands between its own two."""
        letters: list[int] = []
        tokens: list[int] = []
        spans: list[tuple[int, int]] = []
        said: list[tuple[int, int]] = []
        for number, part in enumerate(parts):
            first = len(letters) + (1 if letters else 0)
            if timed:
                latest = _LATEST_FIRST_SECONDS if number == 0 else None
                tokens.append(self._timestamp(part.start_seconds, latest))
                spans.append((first, first))
            for token in self._encoding.encode(f" {writable(part.text)}"):
                start = len(letters)
                _append_letters(letters, self._pieces[token])
                # The gap before a word is nobody's: a word starts where its first letter is heard.
                spoken = [place for place in range(start, len(letters)) if letters[place] != SPACE]
                spans.append((spoken[0], spoken[-1] + 1) if spoken else (len(letters), len(letters)))
                tokens.append(token)
            said.append((min(first, len(letters)), len(letters)))
            if timed:
                tokens.append(self._timestamp(part.end_seconds, None))
                spans.append((len(letters), len(letters)))
        return Spelled(letters, [*tokens, self.whisper.eot], [*spans, (len(letters), len(letters))], said)

    def _timestamp(self, seconds: float, latest: float | None) -> int:
        within = seconds if latest is None else min(seconds, latest)
        first: int = self.whisper.timestamp_begin
        return first + round(within / SECONDS_PER_TIMESTAMP)


def writable(text: str) -> str:
    """The text without what Whisper's decoding suppresses as no speech."""
    return text.replace(";", ",").replace(":", ",")


def letters_of(text: str) -> list[int]:
    """What the encoder should hear of a text."""
    letters: list[int] = []
    _append_letters(letters, text)
    return letters


def read_letters(letters: Sequence[int]) -> str:
    """Letters as text."""
    return "".join(" " if letter == SPACE else chr(ord("a") + letter - 2) for letter in letters if letter != BLANK)


@cache
def whisper_tokenizer() -> Tokenizer:
    """Whisper's English tokenizer."""
    with warnings.catch_warnings():
        # It leaves the file of its vocabulary to be closed by the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        return get_tokenizer(multilingual=False)


def _append_letters(letters: list[int], text: str) -> None:
    for character in text.lower():
        if "a" <= character <= "z":
            letters.append(ord(character) - ord("a") + 2)
        elif character in " -" and letters and letters[-1] != SPACE:
            letters.append(SPACE)
