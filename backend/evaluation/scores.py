"""What is measured on a take, and on all takes of a checkpoint together. Pure arithmetic: no model, no files."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from backend.provenance.statement import SpeechStatement


class Hearing(BaseModel):
    """What one listener made of one take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listener: str
    transcript: str
    character_error: float
    word_error: float


class ListenerErrors(BaseModel):
    """What one listener got wrong in the takes of a checkpoint, on average."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listener: str | None
    """Which one; None in scores of earlier versions."""
    character_error: float
    word_error: float | None = None
    own_character_error: float | None = None
    """The same listener's errors on the speaker's own recordings; None if it did not hear any."""


class Measures(BaseModel):
    """What was measured on one take; None where it could not be measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    transcript: str | None = None
    """What speech recognition understood."""
    transcriber: str | None = None
    """Which one heard it; None in scores of earlier versions."""
    character_error: float | None = None
    word_error: float | None = None
    also_heard: tuple[Hearing, ...] = ()
    """By the other listeners of this machine."""
    speaker_similarity: float | None = None
    """To the reference, by the model's own speaker encoder: biased, because it also steers the model."""
    verified_similarity: float | None = None
    """The same by an independent speaker verifier."""
    verifier: str | None = None
    """Which one; None in scores of earlier versions, and where there is none."""
    clipped_share: float = 0.0

    def character_errors(self) -> dict[str | None, float]:
        """Of each listener, the preferred one first."""
        first = {} if self.character_error is None else {self.transcriber: self.character_error}
        return first | {heard.listener: heard.character_error for heard in self.also_heard}


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
    transcriber: str | None = None
    """Which listener got these wrong; None in scores of earlier versions."""
    own_character_error: float | None = None
    """What the same listener gets wrong in the speaker's own recordings; None if it did not hear any."""
    also_heard: tuple[ListenerErrors, ...] = ()
    """The other listeners."""
    speaker_similarity: float | None
    verified_similarity: float | None
    verifier: str | None = None
    """Which speaker verifier; None in scores of earlier versions, and where there is none."""
    duration_ratio: float
    """Median, which one runaway take does not move."""
    finished_share: float
    """Takes that ended by themselves."""
    clipped_share: float

    @property
    def listeners(self) -> tuple[ListenerErrors, ...]:
        """All that heard the takes, the preferred one first."""
        if self.character_error is None:
            return self.also_heard
        first = ListenerErrors(
            listener=self.transcriber,
            character_error=self.character_error,
            word_error=self.word_error,
            own_character_error=self.own_character_error,
        )
        return (first, *self.also_heard)


def summarize(takes: Sequence[EvaluatedTake], own_errors: Mapping[str, float] | None = None) -> CheckpointScores:
    """Put the scores of all takes of a checkpoint together.

    Args:
        takes: one or more.
        own_errors: what each listener gets wrong in the speaker's own recordings, characters in each.
    """
    assert takes, "a checkpoint without takes was not evaluated"
    own_errors = own_errors or {}
    transcriber = next((take.transcriber for take in takes if take.transcriber is not None), None)
    others: dict[str, list[Hearing]] = {}
    for heard in (heard for take in takes for heard in take.also_heard):
        others.setdefault(heard.listener, []).append(heard)
    return CheckpointScores(
        num_takes=len(takes),
        transcriber=transcriber,
        own_character_error=own_errors.get(transcriber or ""),
        also_heard=tuple(
            ListenerErrors(
                listener=listener,
                character_error=statistics.fmean(one.character_error for one in heard),
                word_error=statistics.fmean(one.word_error for one in heard),
                own_character_error=own_errors.get(listener),
            )
            for listener, heard in others.items()
        ),
        verifier=next((take.verifier for take in takes if take.verifier is not None), None),
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
