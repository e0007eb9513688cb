"""Selects the best checkpoint by its scores, and says whether it beats zero-shot cloning. Scores in, words out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from backend.evaluation.score_words import OWN_OPINION
from backend.evaluation.scores import CheckpointScores, ListenerErrors
from backend.runs.storage.records import BASE, CheckpointRecord
from backend.voices.strangers import STRANGER_SIMILARITY

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

HEARD_ERROR = 0.02
"""Of the characters: a smaller difference is not heard."""

HEARD_LIKENESS = 0.02
"""Of the similarity: what a handful of sentences can tell apart."""

Aspect = Literal["likeness", "words", "pace", "endings", "clipping"]
"""What counts towards the quality."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The best checkpoint and what to say about it.

    Attributes:
        best: name of the best fine-tuned checkpoint; None when none could be evaluated.
        beats_base: whether it sounds better than the model the run started from; None when that was not evaluated.
        verdict: in plain words.
        is_behind: whether the model the run started from sounds notably better than it.
        likeness: to the person, before and after, by the same ear; None where one of them is not known.
        gains: the aspects that are better (above 0) or worse than before, each by more than can be chance.
    """

    best: str | None
    beats_base: bool | None
    verdict: str
    is_behind: bool = False
    likeness: tuple[float, float] | None = None
    gains: Mapping[Aspect, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """What all of some checkpoints were measured by, so that they can be compared with each other.

    Attributes:
        listener: heard all of them; None where only listeners of their own, or of an earlier version, did.
        is_relative: errors count as the difference to the same listener's errors on the person's own recordings.
        is_verified: the speaker verifier heard all of them; otherwise the model's own encoder says how alike they are.
    """

    listener: str | None
    is_relative: bool
    is_verified: bool

    @classmethod
    def of(cls, scores: Sequence[CheckpointScores]) -> Scale:
        """The scale for these."""
        heard = [{errors.listener: errors for errors in each.listeners} for each in scores if each.listeners]
        listener = next((name for name in heard[0] if all(name in each for each in heard)), None) if heard else None
        chosen = [each.get(listener) or next(iter(each.values())) for each in heard]
        return cls(
            listener=listener,
            is_relative=all(errors.own_character_error is not None for errors in chosen),
            is_verified=all(each.verified_similarity is not None for each in scores),
        )

    def errors(self, scores: CheckpointScores) -> ListenerErrors | None:
        """Those that are compared."""
        listeners = scores.listeners
        return next((each for each in listeners if each.listener == self.listener), listeners[0] if listeners else None)

    def error(self, scores: CheckpointScores) -> float | None:
        """Characters wrong, beyond those that are the listener's fault; None where no words were checked."""
        errors = self.errors(scores)
        if errors is None:
            return None
        return errors.character_error - ((errors.own_character_error or 0.0) if self.is_relative else 0.0)

    def similarity(self, scores: CheckpointScores) -> float | None:
        """To the person's voice."""
        return scores.verified_similarity if self.is_verified else scores.speaker_similarity


def quality(scores: CheckpointScores, scale: Scale | None = None) -> float:
    """One number to compare checkpoints of one run by; higher is better. Of several speakers it is their mean.

    The independent verifier's similarity counts where it heard all of them, the model's own encoder's otherwise.
    """
    if scores.speakers:
        of_all = scale or Scale.of(list(scores.speakers.values()))
        return statistics.fmean(quality(one, of_all) for one in scores.speakers.values())
    return sum(_parts_of_quality(scores, scale or Scale.of([scores])).values())


def _parts_of_quality(scores: CheckpointScores, scale: Scale) -> dict[Aspect, float]:
    """What each aspect adds to the quality of one voice."""
    ratio = max(scores.duration_ratio, 1e-3)
    pace = max(ratio, 1 / ratio)
    return {
        "likeness": SIMILARITY_WEIGHT * (scale.similarity(scores) or 0.0),
        "words": -ERROR_WEIGHT * (scale.error(scores) or 0.0),
        "pace": -DURATION_WEIGHT * min(max(pace - TOLERATED_PACE, 0.0), 4.0),
        "endings": -UNFINISHED_WEIGHT * (1 - scores.finished_share),
        "clipping": -CLIPPED_WEIGHT * scores.clipped_share,
    }


def choose(checkpoints: Sequence[CheckpointRecord]) -> Choice:
    """Compare the evaluated checkpoints with each other and with the base model."""
    evaluated = [(point, point.scores) for point in checkpoints if point.scores and point.state != "failed"]
    zero_shot = next(((point, scores) for point, scores in evaluated if point.is_base), None)
    tuned = [(point, scores) for point, scores in evaluated if not point.is_base]
    if not tuned:
        return Choice(best=None, beats_base=None, verdict="No checkpoint could be evaluated, so none is recommended.")
    scale = Scale.of([one for _, scores in evaluated for one in (*scores.speakers.values(), scores)])
    # Of two that sound alike the earlier one has forgotten less of the base model.
    best, scores = max(tuned, key=lambda pair: (round(quality(pair[1], scale), 4), -pair[0].step))
    if zero_shot is None:
        verdict = (
            f"The best checkpoint is step {best.step}. The base model was not evaluated, so there is no comparison."
        )
        return Choice(best=best.name, beats_base=None, verdict=verdict)
    base_point, base = zero_shot
    luck = standard_error_of_difference(base_point, best, scale.listener)
    gain = quality(scores, scale) - quality(base, scale) - _error_gain_by_chance(scores, base, scale, luck)
    is_harder = _is_harder_to_understand(scores, base, scale)
    beats = gain > NOTABLE_GAIN and not is_harder
    several = len(scores.speakers)
    opening = (
        f"The {several} fine-tuned voices at step {best.step} are better than zero-shot cloning, on average: "
        if beats and several
        else f"The fine-tuned voice at step {best.step} is better than zero-shot cloning: "
        if beats
        else f"No checkpoint beats zero-shot cloning; the nearest is step {best.step}: "
    )
    ending = "." if beats else ". Keep the zero-shot voice, or fine-tune with more recordings."
    return Choice(
        best=best.name,
        beats_base=beats,
        verdict=opening + _differences(base, scores, scale, luck) + ending + _worst_speaker(base, scores, scale),
        is_behind=is_harder or gain < -NOTABLE_GAIN,
        likeness=_likeness(base, scores, scale),
        gains=_gains(base, scores, scale, luck),
    )


def winner(best: str | None, checkpoints: Sequence[CheckpointRecord]) -> str | None:
    """Name of what sounds best altogether in a run whose `best` checkpoint is known: that one, unless the base model
    is as good; None before, and where nothing was evaluated.
    """
    choice = choose(checkpoints)
    if best is None or choice.best is None:
        return None
    return BASE if choice.beats_base is False else best


def _likeness(base: CheckpointScores, tuned: CheckpointScores, scale: Scale) -> tuple[float, float] | None:
    before, after = scale.similarity(base), scale.similarity(tuned)
    return (before, after) if before is not None and after is not None else None


def _gains(base: CheckpointScores, tuned: CheckpointScores, scale: Scale, luck: float | None) -> dict[Aspect, float]:
    """The aspects that differ by more than chance makes, and by how much of the quality."""
    speakers = [name for name in tuned.speakers if name in base.speakers]
    pairs = [(base.speakers[name], tuned.speakers[name]) for name in speakers] or [(base, tuned)]
    parts = [(_parts_of_quality(before, scale), _parts_of_quality(after, scale)) for before, after in pairs]
    gains: dict[Aspect, float] = {
        aspect: statistics.fmean(after[aspect] - before[aspect] for before, after in parts) for aspect in parts[0][0]
    }
    gains["likeness"] = 0.0
    if (likeness := _likeness(base, tuned, scale)) is not None:
        # Of the numbers as they are read: nobody is told that 0.70 and 0.72 are alike once, and once are not.
        before, after = (round(number, 2) for number in likeness)
        gains["likeness"] = round(after - before, 2)
    heard = max(HEARD_ERROR, 2 * (luck or 0.0))
    # What is too hard to understand counts as such, whatever chance makes.
    least = {"likeness": HEARD_LIKENESS, "words": min(heard, WORSE_ERROR) if gains["words"] < 0 else heard}
    return {aspect: gain for aspect, gain in gains.items() if abs(gain) >= least.get(aspect, NOTABLE_GAIN)}


def _worst_speaker(base: CheckpointScores, tuned: CheckpointScores, scale: Scale) -> str:
    """A sentence about the speaker whose voice came out worst, for the mean hides it; empty with one speaker."""
    both = [name for name in tuned.speakers if name in base.speakers]
    if not both:
        return ""
    name = min(both, key=lambda one: quality(tuned.speakers[one], scale))
    before, after = base.speakers[name], tuned.speakers[name]
    differences = _differences(before, after, scale, None)
    if quality(after, scale) < quality(before, scale) - NOTABLE_GAIN:
        return f" The worst voice is {name}, which zero-shot cloning does better: {differences}."
    return f" The worst voice is {name}: {differences}."


def _is_harder_to_understand(scores: CheckpointScores, base: CheckpointScores, scale: Scale) -> bool:
    after, before = scale.error(scores), scale.error(base)
    return after is not None and before is not None and after > before + WORSE_ERROR


def _error_gain_by_chance(scores: CheckpointScores, base: CheckpointScores, scale: Scale, luck: float | None) -> float:
    """What the quality owes to fewer errors, if there are hardly fewer than chance makes of other seeds."""
    after, before = scale.error(scores), scale.error(base)
    if luck is None or after is None or before is None:
        return 0.0
    fewer = before - after
    return ERROR_WEIGHT * fewer if 0 < fewer <= luck else 0.0


def standard_error_of_difference(
    base: CheckpointRecord, tuned: CheckpointRecord, listener: str | None = None
) -> float | None:
    """Standard error of the difference between two character errors of one listener, over the same sentences.

    None with too few.
    """
    before = {take.position: take.character_errors().get(listener) for take in base.takes}
    differences = [
        error - earlier
        for take in tuned.takes
        if (error := take.character_errors().get(listener)) is not None
        and (earlier := before.get(take.position)) is not None
    ]
    if len(differences) < MIN_TO_COMPARE:
        return None
    return statistics.stdev(differences) / math.sqrt(len(differences))


def _differences(base: CheckpointScores, tuned: CheckpointScores, scale: Scale, luck: float | None) -> str:
    """What changed, number by number."""
    parts = []
    before, after = scale.similarity(base), scale.similarity(tuned)
    if before is not None and after is not None:
        like = f"speaker similarity {before:.2f} → {after:.2f}"
        if not scale.is_verified:
            like += f" ({OWN_OPINION}, which is biased)"
        elif after < STRANGER_SIMILARITY:
            like += " (no more like the speaker than a stranger)"
        parts.append(like)
    heard, now_heard = scale.errors(base), scale.errors(tuned)
    if heard is not None and now_heard is not None:
        by_chance = f" (by chance ±{luck:.0%})" if luck is not None else ""
        parts.append(
            f"character error {heard.character_error:.0%} → {now_heard.character_error:.0%}{by_chance}"
            + _heard_by(heard, now_heard)
        )
    else:
        parts.append("words were not checked, because nothing here could listen")
    parts.append(f"length against expected {base.duration_ratio:.2f} → {tuned.duration_ratio:.2f}")
    if base.finished_share < 1 or tuned.finished_share < 1:
        parts.append(f"takes that ended by themselves {base.finished_share:.0%} → {tuned.finished_share:.0%}")
    return ", ".join(parts)


def _heard_by(before: ListenerErrors, after: ListenerErrors) -> str:
    """Who listened, and what that listener gets wrong anyway."""
    if after.listener is None or before.listener is None:
        return ""
    if after.listener != before.listener:
        return f" heard by {before.listener} and then by {after.listener}"
    if after.own_character_error is None:
        return f" heard by {after.listener}"
    return f" heard by {after.listener} ({after.own_character_error:.0%} of the speaker's own recordings)"
