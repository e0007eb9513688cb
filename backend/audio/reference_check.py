"""Whether a decoded recording is fit to clone a voice from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from backend.audio.limits import REFERENCE_LIMITS, ReferenceLimits
from backend.audio.recording import Recording
from backend.errors import RecordingDamaged, RecordingSilent, RecordingTooLong, RecordingTooShort


def check_reference(recording: Recording, limits: ReferenceLimits = REFERENCE_LIMITS) -> None:
    """Refuse a recording that no voice can be cloned from.

    Raises:
        RecordingDamaged: samples are not numbers, or far beyond full scale.
        RecordingTooShort, RecordingTooLong: it lasts less or more than the limits.
        RecordingSilent: no moment of it is as loud as speech.
    """
    name, samples = recording.source_name, recording.samples
    if not np.isfinite(samples).all():
        raise RecordingDamaged(name, problem="some samples are not numbers (NaN or infinite)")
    if recording.seconds < limits.minimum_seconds:
        raise RecordingTooShort(name, seconds=recording.seconds, minimum_seconds=limits.minimum_seconds)
    if recording.seconds > limits.maximum_seconds:
        raise RecordingTooLong(name, seconds=recording.seconds, maximum_seconds=limits.maximum_seconds)
    peak = float(np.abs(samples).max(initial=0.0))
    if peak > limits.maximum_peak:
        raise RecordingDamaged(name, problem=f"its loudest sample is {peak:.0f} times full scale")
    for measure, level_dbfs, minimum_dbfs in (
        ("peak", _to_dbfs(peak), limits.minimum_peak_dbfs),
        ("loudest second", _to_dbfs(_loudest_second_rms(samples, recording.sample_rate)), limits.minimum_rms_dbfs),
    ):
        if level_dbfs < minimum_dbfs:
            raise RecordingSilent(name, measure=measure, level_dbfs=level_dbfs, minimum_dbfs=minimum_dbfs)


def _loudest_second_rms(samples: NDArray[np.float32], sample_rate: int) -> float:
    """The highest mean level of any second that starts at a whole quarter second."""
    hop = max(1, sample_rate // 4)
    starts = np.arange(0, len(samples), hop)
    quarter_energies = np.add.reduceat(np.square(samples, dtype=np.float64), starts)
    second_energies = np.convolve(quarter_energies, np.ones(4))
    return math.sqrt(second_energies.max() / min(len(samples), 4 * hop))


def _to_dbfs(amplitude: float) -> float:
    return 20.0 * math.log10(amplitude) if amplitude > 0.0 else -math.inf
