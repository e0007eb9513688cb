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
    likeness: dict[str, float] = {}
    """Similarity to each speaker of a run that teaches several, by the verifier; by the model's own encoder without."""

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
    speaker: str = ""
    """Whose voice it should be, where a run teaches several."""
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
    speakers: dict[str, CheckpointScores] = {}
    """Of each speaker's takes, where a run teaches several; the numbers above are then the means of theirs."""

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


OwnErrors = Mapping[str, Mapping[str, float]]
"""For each speaker, the share of characters that each listener gets wrong in the person's own recordings."""


def summarize(takes: Sequence[EvaluatedTake], own_errors: OwnErrors | None = None) -> CheckpointScores:
    """Put the scores of all takes of a checkpoint together; every speaker counts as much as any other.

    Args:
        takes: one or more.
        own_errors: what each listener gets wrong in the speakers' own recordings.
    """
    assert takes, "a checkpoint without takes was not evaluated"
    own_errors = own_errors or {}
    names = list(dict.fromkeys(take.speaker for take in takes))
    by_speaker = {
        name: _summarize([take for take in takes if take.speaker == name], own_errors.get(name, {})) for name in names
    }
    if len(by_speaker) == 1:
        return by_speaker[names[0]]
    return _mean_scores(by_speaker)


def _mean_scores(by_speaker: Mapping[str, CheckpointScores]) -> CheckpointScores:
    """Means over the speakers; of the listeners those that heard all of them."""
    each = list(by_speaker.values())
    heard = [{errors.listener: errors for errors in scores.listeners} for scores in each]
    shared = [name for name in heard[0] if all(name in one for one in heard)]
    listeners = [_mean_errors([one[name] for one in heard]) for name in shared]
    first = listeners[0] if listeners else None
    return CheckpointScores(
        num_takes=sum(scores.num_takes for scores in each),
        character_error=first.character_error if first else None,
        word_error=first.word_error if first else None,
        transcriber=first.listener if first else None,
        own_character_error=first.own_character_error if first else None,
        also_heard=tuple(listeners[1:]),
        speaker_similarity=_mean_of_all([scores.speaker_similarity for scores in each]),
        verified_similarity=_mean_of_all([scores.verified_similarity for scores in each]),
        verifier=each[0].verifier,
        duration_ratio=statistics.fmean(scores.duration_ratio for scores in each),
        finished_share=statistics.fmean(scores.finished_share for scores in each),
        clipped_share=statistics.fmean(scores.clipped_share for scores in each),
        speakers=dict(by_speaker),
    )


def _mean_errors(errors: Sequence[ListenerErrors]) -> ListenerErrors:
    return ListenerErrors(
        listener=errors[0].listener,
        character_error=statistics.fmean(one.character_error for one in errors),
        word_error=_mean_of_all([one.word_error for one in errors]),
        own_character_error=_mean_of_all([one.own_character_error for one in errors]),
    )


def _summarize(takes: Sequence[EvaluatedTake], own_errors: Mapping[str, float]) -> CheckpointScores:
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


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    """None where one of them is not known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None
