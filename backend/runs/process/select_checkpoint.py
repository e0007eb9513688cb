"""Selects the best checkpoint by its scores, and says whether it beats zero-shot cloning. Scores in, words out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from backend.evaluation.scores import CheckpointScores
from backend.runs.storage.records import CheckpointRecord

ERROR_WEIGHT = 1.0
"""A tenth more characters wrong outweighs a tenth more similarity: a voice that cannot be understood is useless."""

SIMILARITY_WEIGHT = 1.0
DURATION_WEIGHT = 0.25
UNFINISHED_WEIGHT = 0.5
CLIPPED_WEIGHT = 2.0

TOLERATED_PACE = 1.25
"""People speak a quarter faster or slower than expected without anything being wrong."""

NOTABLE_GAIN = 0.01
"""Smaller differences than this are due to the seeds."""

MIN_TO_COMPARE = 3
"""Sentences needed to estimate how much of a difference is chance."""

WORSE_ERROR = 0.05
"""That much more error is heard whatever the similarity."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The best checkpoint and what to say about it.

    Attributes:
        best: name of the best fine-tuned checkpoint; None when none could be evaluated.
        beats_base: whether it sounds better than the model the run started from; None when that was not evaluated.
        verdict: in plain words.
    """

    best: str | None
    beats_base: bool | None
    verdict: str


def quality(scores: CheckpointScores) -> float:
    """One number to compare checkpoints of one run by; higher is better.

    The independent verifier's similarity counts where there is one, the model's own encoder's otherwise.
    """
    similarity = (
        scores.verified_similarity if scores.verified_similarity is not None else (scores.speaker_similarity or 0.0)
    )
    error = scores.character_error if scores.character_error is not None else 0.0
    ratio = max(scores.duration_ratio, 1e-3)
    pace = max(ratio, 1 / ratio)
    return (
        SIMILARITY_WEIGHT * similarity
        - ERROR_WEIGHT * error
        - DURATION_WEIGHT * min(max(pace - TOLERATED_PACE, 0.0), 4.0)
        - UNFINISHED_WEIGHT * (1 - scores.finished_share)
        - CLIPPED_WEIGHT * scores.clipped_share
    )


def choose(checkpoints: Sequence[CheckpointRecord]) -> Choice:
    """Compare the evaluated checkpoints with each other and with the base model."""
    evaluated = [(point, point.scores) for point in checkpoints if point.scores and point.state != "failed"]
    zero_shot = next(((point, scores) for point, scores in evaluated if point.is_base), None)
    tuned = [(point, scores) for point, scores in evaluated if not point.is_base]
    if not tuned:
        return Choice(best=None, beats_base=None, verdict="No checkpoint could be evaluated, so none is recommended.")
    # Of two that sound alike the earlier one has forgotten less of the base model.
    best, scores = max(tuned, key=lambda pair: (round(quality(pair[1]), 4), -pair[0].step))
    if zero_shot is None:
        verdict = (
            f"The best checkpoint is step {best.step}. The base model was not evaluated, so there is no comparison."
        )
        return Choice(best=best.name, beats_base=None, verdict=verdict)
    base_point, base = zero_shot
    beats = quality(scores) > quality(base) + NOTABLE_GAIN and not _is_harder_to_understand(scores, base)
    opening = (
        f"The fine-tuned voice at step {best.step} is better than zero-shot cloning: "
        if beats
        else f"No checkpoint beats zero-shot cloning; the nearest is step {best.step}: "
    )
    ending = "." if beats else ". Keep the zero-shot voice, or fine-tune with more recordings."
    return Choice(
        best=best.name,
        beats_base=beats,
        verdict=opening + _differences(base, scores, standard_error_of_difference(base_point, best)) + ending,
    )


def _is_harder_to_understand(scores: CheckpointScores, base: CheckpointScores) -> bool:
    if scores.character_error is None or base.character_error is None:
        return False
    return scores.character_error > base.character_error + WORSE_ERROR


def standard_error_of_difference(base: CheckpointRecord, tuned: CheckpointRecord) -> float | None:
    """Standard error of the difference between two character errors, over the same sentences; None with too few."""
    before = {take.position: take.character_error for take in base.takes}
    differences = [
        take.character_error - earlier
        for take in tuned.takes
        if take.character_error is not None and (earlier := before.get(take.position)) is not None
    ]
    if len(differences) < MIN_TO_COMPARE:
        return None
    return statistics.stdev(differences) / math.sqrt(len(differences))


def _differences(base: CheckpointScores, tuned: CheckpointScores, luck: float | None) -> str:
    """What changed, number by number."""
    parts = []
    if base.verified_similarity is not None and tuned.verified_similarity is not None:
        parts.append(f"speaker similarity {base.verified_similarity:.2f} → {tuned.verified_similarity:.2f}")
    elif base.speaker_similarity is not None and tuned.speaker_similarity is not None:
        parts.append(
            f"speaker similarity {base.speaker_similarity:.2f} → {tuned.speaker_similarity:.2f} "
            "(by the model's own encoder, which is biased)"
        )
    if base.character_error is not None and tuned.character_error is not None:
        by_chance = f" (by chance ±{luck:.0%})" if luck is not None else ""
        parts.append(f"character error {base.character_error:.0%} → {tuned.character_error:.0%}{by_chance}")
    else:
        parts.append("words were not checked, because no speech recognition is installed")
    parts.append(f"length against expected {base.duration_ratio:.2f} → {tuned.duration_ratio:.2f}")
    if base.finished_share < 1 or tuned.finished_share < 1:
        parts.append(f"takes that ended by themselves {base.finished_share:.0%} → {tuned.finished_share:.0%}")
    return ", ".join(parts)
