"""Scores in words: who measured them, and what they do not show."""

from __future__ import annotations

from backend.evaluation.scores import CheckpointScores, Measures
from backend.voices.strangers import STRANGER_SIMILARITY

OWN_OPINION = "the model's own opinion"
"""What a likeness is that no speaker verifier measured: the encoder that steers the model also judges it."""


def describe_likeness(scores: Measures | CheckpointScores) -> str:
    """How like the voice it is, to whom, and whether that is a likeness at all; empty where it was not measured."""
    if scores.verified_similarity is not None:
        by = scores.verifier or "the speaker verifier"
        if scores.verified_similarity < STRANGER_SIMILARITY:
            return f"{scores.verified_similarity:.2f} by {by}: no more like the voice than a stranger's"
        return f"{scores.verified_similarity:.2f} by {by}"
    return "" if scores.speaker_similarity is None else f"{scores.speaker_similarity:.2f}, {OWN_OPINION}"


def describe_errors(scores: CheckpointScores) -> str:
    """What each listener gets wrong, beside what it gets wrong in the speaker's own recordings; empty without any."""
    return "; ".join(
        f"{errors.character_error:.1%} by {errors.listener or 'a listener of an earlier version'}"
        + (
            f" ({errors.own_character_error:.1%} in the speaker's own recordings)"
            if errors.own_character_error is not None
            else ""
        )
        for errors in scores.listeners
    )


def describe_hearings(take: Measures) -> str:
    """What each listener understood of a take; empty if nothing listened."""
    heard = [] if take.transcript is None else [(take.transcriber, take.transcript)]
    heard += [(other.listener, other.transcript) for other in take.also_heard]
    return ", ".join(f"heard{f' by {listener}' if listener else ''}: “{transcript}”" for listener, transcript in heard)
