"""What is measured on a take, and on all takes of a checkpoint together. Pure arithmetic: no model, no files."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from backend.provenance.statement import SpeechStatement


class Measures(BaseModel):
    """What was measured on one take; None where it could not be measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    transcript: str | None = None
    transcriber: str | None = None
    """Which one heard it; None in scores of earlier versions."""
    """What speech recognition understood."""
    character_error: float | None = None
    word_error: float | None = None
    speaker_similarity: float | None = None
    """To the reference, by the model's own speaker encoder: biased, because it also steers the model."""
    verified_similarity: float | None = None
    """The same by an independent speaker verifier."""
    clipped_share: float = 0.0


class TakeScores(Measures):
    """What was measured on one take of a comparison."""

    duration_ratio: float
    """Seconds spoken for each second expected; 1 is right."""


class EvaluatedTake(Measures):
    """One sentence as one checkpoint said it, with its scores."""

    position: int
    text: str
    held_out: bool
    """Whether the person said this sentence too; otherwise it is a standard one."""
    seed: int
    seconds: float
    expected_seconds: float
    finish_reason: str
    file: str
    """WAV, relative to the run's folder."""
    statement: SpeechStatement | None = None
    """What the file says of itself; None in takes of earlier versions."""

    @property
    def duration_ratio(self) -> float:
        """Seconds spoken for each second expected; 1 is right, far above is babble, far below is words left out."""
        return self.seconds / self.expected_seconds


class CheckpointScores(BaseModel):
    """How a checkpoint sounds, in numbers; each is the mean over its takes unless it says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_takes: int
    character_error: float | None
    word_error: float | None
    speaker_similarity: float | None
    verified_similarity: float | None
    duration_ratio: float
    """Median, which one runaway take does not move."""
    finished_share: float
    """Takes that ended by themselves."""
    clipped_share: float


def summarize(takes: Sequence[EvaluatedTake]) -> CheckpointScores:
    """Put the scores of all takes of a checkpoint together."""
    assert takes, "a checkpoint without takes was not evaluated"
    return CheckpointScores(
        num_takes=len(takes),
        character_error=_mean([take.character_error for take in takes]),
        word_error=_mean([take.word_error for take in takes]),
        speaker_similarity=_mean([take.speaker_similarity for take in takes]),
        verified_similarity=_mean([take.verified_similarity for take in takes]),
        duration_ratio=statistics.median(take.duration_ratio for take in takes),
        finished_share=sum(take.finish_reason == "eos" for take in takes) / len(takes),
        clipped_share=statistics.fmean(take.clipped_share for take in takes),
    )


def cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Similarity of two speaker embeddings, -1 to 1."""
    scale = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / scale if scale else 0.0


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
