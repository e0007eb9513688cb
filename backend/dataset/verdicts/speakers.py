"""Who speaks in a set of clips: distances of speaker embeddings to the set's centre, and the clip nearest to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.dataset.clips.encoded_clip import ClipVoice

# Of a normal distribution, the median of the deviations is this much of the standard deviation.
_MEDIAN_TO_STANDARD = 1.4826
# Clips of one speaker differ by as much anyway; keeps a very uniform set from calling anything odd.
_MIN_DEVIATION = 0.01
_BLOCK_ROWS = 256


@dataclass(frozen=True)
class SpeakerDistances:
    """Of each clip to the centre of the set.

    Attributes:
        distances: cosine distances, 0 to 2.
        deviations: the same in robust standard deviations beyond the median.
        is_verified: whether they are the verifier's, which knows people, and not the model's own.
    """

    distances: tuple[float, ...]
    deviations: tuple[float, ...]
    is_verified: bool


def speaker_distances(voices: Sequence[ClipVoice]) -> SpeakerDistances:
    """Distances of each of at least one clip to the centre of the larger half; the verifier's where it knows all.

    The centre is that of the half of the clips around the clip that is closest to most others, so that strangers, as
    long as they are fewer, do not move it.
    """
    voiceprints = [voice.voiceprint for voice in voices if voice.voiceprint is not None]
    is_verified = len(voiceprints) == len(voices)
    directions = _directions(voiceprints if is_verified else [voice.embedding for voice in voices])
    middle = int(np.argmax(_median_similarities(directions)))
    nearest = np.argsort(-(directions @ directions[middle]), kind="stable")[: len(directions) // 2 + 1]
    centre = directions[nearest].mean(axis=0)
    centre /= max(float(np.linalg.norm(centre)), 1e-12)
    distances = 1.0 - directions @ centre
    median = float(np.median(distances))
    spread = max(_MEDIAN_TO_STANDARD * float(np.median(np.abs(distances - median))), _MIN_DEVIATION)
    return SpeakerDistances(
        distances=tuple(float(distance) for distance in distances),
        deviations=tuple(float(deviation) for deviation in (distances - median) / spread),
        is_verified=is_verified,
    )


def _median_similarities(directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each clip to all: a few rows at a time, because all of thousands of clips would be a hundred megabytes."""
    medians = [
        np.median(directions[begin : begin + _BLOCK_ROWS] @ directions.T, axis=1, overwrite_input=True)
        for begin in range(0, len(directions), _BLOCK_ROWS)
    ]
    return np.concatenate(medians)


def _directions(embeddings: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    vectors = np.asarray(embeddings, dtype=np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions: NDArray[np.float64] = vectors / np.maximum(lengths, 1e-12)
    return directions
