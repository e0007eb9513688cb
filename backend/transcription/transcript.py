"""What was said, and when: the result of listening to a recording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
class Passage:
    """A stretch of sound that was listened to in one go, with the numbers that tell hearing from making up.

    Attributes:
        no_speech_probability: how likely it holds no speech at all.
        compression_ratio: of its text; above 2.4 the text runs in circles.
        mean_log_probability: per token; below -1 the listener was guessing.
    """

    start_seconds: float
    end_seconds: float
    no_speech_probability: float
    compression_ratio: float
    mean_log_probability: float

    def shifted(self, seconds: float) -> Passage:
        """The same passage, with times counted from another moment."""
        return replace(self, start_seconds=self.start_seconds + seconds, end_seconds=self.end_seconds + seconds)


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """What was heard; the numbers are those of its worst passage.

    Attributes:
        language: two-letter code, as Whisper names languages; empty if nothing was heard.
        passages: where the numbers come from, for a recording that was listened to in parts.
    """

    text: str
    language: str
    words: tuple[Word, ...]
    no_speech_probability: float = 0.0
    compression_ratio: float = 1.0
    mean_log_probability: float = 0.0
    passages: tuple[Passage, ...] = ()

    @property
    def confidence(self) -> float:
        """How sure the listener is, 0 to 1: the mean probability of the words."""
        return sum(word.probability for word in self.words) / len(self.words) if self.words else 0.0

    def excerpt(self, start_seconds: float, end_seconds: float) -> Transcript:
        """What was heard between two moments, with times counted from the first; words count by their middle."""
        words = tuple(
            word.shifted(-start_seconds)
            for word in self.words
            if start_seconds <= (word.start_seconds + word.end_seconds) / 2 < end_seconds
        )
        passages = tuple(
            passage.shifted(-start_seconds)
            for passage in self.passages
            if passage.start_seconds < end_seconds and start_seconds < passage.end_seconds
        )
        if not passages:
            return replace(self, text=join_words(words), words=words)
        return assemble_transcript(words, passages, self.language)


def assemble_transcript(words: Sequence[Word], passages: Sequence[Passage], language: str) -> Transcript:
    """Make one transcript of words and the passages they were heard in."""
    return Transcript(
        text=join_words(words),
        language=language,
        words=tuple(words),
        no_speech_probability=max((each.no_speech_probability for each in passages), default=1.0),
        compression_ratio=max((each.compression_ratio for each in passages), default=1.0),
        mean_log_probability=min((each.mean_log_probability for each in passages), default=0.0),
        passages=tuple(passages),
    )


def join_words(words: Iterable[Word]) -> str:
    """Write words as running text, with spaces where their script has them."""
    return "".join(f"{' ' if word.has_space_before else ''}{word.text}" for word in words).strip()
