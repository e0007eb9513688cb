"""What was said, and when: the result of listening to a recording."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Word:
    """One word and where it is in the recording.

    Attributes:
        text: with its punctuation, without spaces around it.
        probability: how sure the listener is of it, 0 to 1.
        has_space_before: false in scripts that put no space between words, and for the second half of `don't`.
    """

    text: str
    start_seconds: float
    end_seconds: float
    probability: float = 1.0
    has_space_before: bool = True

    def shifted(self, seconds: float) -> Word:
        """The same word, with times counted from another moment."""
        return replace(self, start_seconds=self.start_seconds + seconds, end_seconds=self.end_seconds + seconds)


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """What a transcriber heard, with the numbers that tell hearing from making up.

    Attributes:
        language: two-letter code, as Whisper names languages.
        no_speech_probability: the highest over all parts: how likely one of them holds no speech at all.
        compression_ratio: the highest over all parts: of text that runs in circles it is above 2.4.
        mean_log_probability: per token; below -1 the listener was guessing.
    """

    text: str
    language: str
    words: tuple[Word, ...]
    no_speech_probability: float = 0.0
    compression_ratio: float = 1.0
    mean_log_probability: float = 0.0

    @property
    def confidence(self) -> float:
        """How sure the listener is, 0 to 1: the mean probability of the words."""
        return sum(word.probability for word in self.words) / len(self.words) if self.words else 0.0


def join_words(words: Iterable[Word]) -> str:
    """Write words as running text, with spaces where their script has them."""
    return "".join(f"{' ' if word.has_space_before else ''}{word.text}" for word in words).strip()
