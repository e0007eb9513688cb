"""What was said, and when: the result of transcribing a recording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from backend.audio.span import Span


@dataclass(frozen=True, kw_only=True)
class Word(Span):
    """One word and where it is in the recording.

    Attributes:
        text: with its punctuation, without spaces around it.
        probability: confidence of the transcriber, 0 to 1.
        has_space_before: false in scripts that put no space between words, and for the second half of `don't`.
    """

    text: str
    probability: float = 1.0
    has_space_before: bool = True


@dataclass(frozen=True, kw_only=True)
class Passage(Span):
    """A stretch of sound that was transcribed at once, with the numbers that reveal made-up text.

    Attributes:
        no_speech_probability: how likely it holds no speech at all.
        compression_ratio: of its text; above 2.4 the text repeats itself.
        mean_log_probability: per token; below -1 the transcriber was guessing.
    """

    no_speech_probability: float
    compression_ratio: float
    mean_log_probability: float


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """What was heard; the numbers are those of its worst passage.

    Attributes:
        language: two-letter code, as Whisper names languages; empty if nothing was heard.
        transcriber: who heard it; empty in what earlier versions stored of a Whisper.
        passages: where the numbers come from, for a recording that was transcribed in parts.
    """

    text: str
    language: str
    words: tuple[Word, ...]
    no_speech_probability: float = 0.0
    compression_ratio: float = 1.0
    mean_log_probability: float = 0.0
    passages: tuple[Passage, ...] = ()
    transcriber: str = ""

    @property
    def confidence(self) -> float:
        """Confidence of the transcriber, 0 to 1: the mean probability of the words."""
        return sum(word.probability for word in self.words) / len(self.words) if self.words else 0.0

    def excerpt(self, span: Span) -> Transcript:
        """What was heard in a stretch, with times counted from its start; words belong where their middle is."""
        start_seconds = span.start_seconds
        words = tuple(
            word.shifted(-start_seconds)
            for word in self.words
            if start_seconds <= word.middle_seconds < span.end_seconds
        )
        passages = tuple(passage.shifted(-start_seconds) for passage in self.passages if passage.overlaps(span))
        if not passages:
            return replace(self, text=join_words(words), words=words)
        return assemble_transcript(words, passages, self.language, transcriber=self.transcriber)


def assemble_transcript(
    words: Sequence[Word], passages: Sequence[Passage], language: str, *, transcriber: str = ""
) -> Transcript:
    """Make one transcript of words and the passages they were heard in."""
    return Transcript(
        text=join_words(words),
        language=language,
        words=tuple(words),
        no_speech_probability=max((each.no_speech_probability for each in passages), default=1.0),
        compression_ratio=max((each.compression_ratio for each in passages), default=1.0),
        mean_log_probability=min((each.mean_log_probability for each in passages), default=0.0),
        passages=tuple(passages),
        transcriber=transcriber,
    )


def join_words(words: Iterable[Word]) -> str:
    """Write words as running text, with spaces where their script has them."""
    return "".join(f"{' ' if word.has_space_before else ''}{word.text}" for word in words).strip()
