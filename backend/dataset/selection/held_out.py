"""Which clips are held out for evaluation, and which one is the reference."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from backend.dataset.clips.thresholds import GateSettings


def choose_held_out(clip_ids: Collection[str], reference_id: str, settings: GateSettings) -> frozenset[str]:
    """A few clips that are never trained on: chosen by their hash, so the same set gives the same choice.

    At least one and at most `max_held_out`, but none where fewer than `min_clips_to_train_on` would remain.
    """
    wanted = min(max(1, round(settings.held_out_share * len(clip_ids))), settings.max_held_out)
    num_held_out = max(0, min(wanted, len(clip_ids) - settings.min_clips_to_train_on))
    candidates = sorted(set(clip_ids) - {reference_id}, key=lambda clip_id: _hash("held out", clip_id))
    return frozenset(candidates[:num_held_out])


@dataclass(frozen=True, kw_only=True)
class ReferenceCandidate:
    """The properties by which the reference clip is chosen.

    Attributes:
        is_clean: no gate has warned.
        distance: of its speaker embedding to the centre.
    """

    clip_id: str
    seconds: float
    is_clean: bool
    distance: float
    speech_over_noise_db: float


def choose_reference(candidates: Sequence[ReferenceCandidate], settings: GateSettings) -> str:
    """The best of one or more clips as reference: clean, of 5 to 10 s, near the centre, with little noise."""

    def demerits(candidate: ReferenceCandidate) -> tuple[bool, float, float, str]:
        """The disadvantages of a clip, the most important first."""
        seconds = candidate.seconds
        shortest, longest = settings.min_reference_seconds, settings.max_reference_seconds
        outside_seconds = max(shortest - seconds, seconds - longest, 0.0)
        # Ten decibels of noise weigh as much as a tenth of cosine distance; beyond 40 dB it is inaudible.
        blemish = candidate.distance - min(candidate.speech_over_noise_db, 40.0) / 100.0
        return (not candidate.is_clean, outside_seconds, blemish, candidate.clip_id)

    return min(candidates, key=demerits).clip_id


def _hash(purpose: str, clip_id: str) -> str:
    return hashlib.sha256(f"{purpose}/{clip_id}".encode()).hexdigest()
