"""How the speech of an epoch is divided among speakers, so that one with an hour does not drown one with five minutes.

An epoch has as many frames as all speakers together have. Each speaker gets an equal share of it: of one with more
speech each epoch takes a part, and what is left out comes next; clips of one with less are repeated. None is repeated
more often than `MAX_REPEATS` times in an epoch: what such a speaker cannot fill is divided among the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

MAX_REPEATS = 4
"""A handful of clips is learnt by heart when it comes around too often; then its losses say nothing any more."""


def frames_per_epoch(frames_by_speaker: Sequence[int]) -> tuple[float, ...]:
    """How many frames of each speaker an epoch has, given how many there are; together as many as there are."""
    left, shares = float(sum(frames_by_speaker)), [0.0] * len(frames_by_speaker)
    # The smallest first: what it cannot fill, those after it share.
    order = sorted(range(len(frames_by_speaker)), key=lambda speaker: frames_by_speaker[speaker])
    for place, speaker in enumerate(order):
        shares[speaker] = min(MAX_REPEATS * frames_by_speaker[speaker], left / (len(order) - place))
        left -= shares[speaker]
    return tuple(shares)


def clips_of_epoch(
    clips_by_speaker: Sequence[range], frames_by_clip: Sequence[int], *, seed: int, epoch: int
) -> list[int]:
    """The clips of an epoch, in order; one that is repeated is there as often. A function of its arguments alone.

    With one speaker these are all clips once.
    """
    frames_by_speaker = [sum(frames_by_clip[clip] for clip in clips) for clips in clips_by_speaker]
    chosen: list[int] = []
    for speaker, share in enumerate(frames_per_epoch(frames_by_speaker)):
        clips = clips_by_speaker[speaker]
        begin, end = epoch * share, (epoch + 1) * share
        for clip, start in _passes(clips, frames_by_clip, frames_by_speaker[speaker], f"{seed}/{speaker}", begin):
            if start >= end:
                break
            if start >= begin:
                chosen.append(clip)
    return sorted(chosen)


def _passes(
    clips: Sequence[int], frames_by_clip: Sequence[int], num_frames: int, seed: str, begin: float
) -> Iterator[tuple[int, int]]:
    """Passes over a speaker's clips, one after the other, each shuffled anew: clip and frame at which it starts.

    From the pass on that has the frame `begin`.
    """
    number = int(begin // num_frames)
    while True:
        order = list(clips)
        random.Random(f"{seed}/{number}").shuffle(order)
        start = number * num_frames
        for clip in order:
            yield clip, start
            start += frames_by_clip[clip]
        number += 1
