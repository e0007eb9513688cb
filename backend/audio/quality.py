"""How good a reference recording is: refused if no voice can be cloned from it, measured otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from backend.audio.limits import REFERENCE_LIMITS, ReferenceLimits
from backend.audio.recording import Recording
from backend.errors import RecordingDamaged, RecordingSilent, RecordingTooLong, RecordingTooShort

FRAME_SECONDS = 0.03
"""Long enough for a level, short enough to fit between two syllables."""

SPEECH_PERCENTILE = 90
NOISE_PERCENTILE = 5
"""Of the levels of all frames: the loud tenth is voice, the quietest twentieth is what the room adds."""

MIN_DBFS = -100.0
"""Reported for digital silence; 16-bit files end at -96 dBFS."""

COMFORTABLE_SECONDS = (3.0, 60.0)
"""Below, a voice is imitated less closely; above, more seconds cost time and bring no likeness."""

QUIET_SPEECH_DBFS = -38.0
"""Ordinary recordings have -30 to -12 dBFS; from here on the noise of the microphone is amplified along."""

NOISY_RATIO_DB = 20.0
"""Voice over background; with less the background is cloned too."""

CLIPPED_LEVEL = 0.998
"""At full scale: limiters and codecs leave a clipped peak a little below it."""

CLIPPED_SHARE = 0.001
"""More samples than this at full scale are audible as crackle, and imitated."""

ENVELOPE_BARS = 160


class Concern(StrEnum):
    """What will be audible in takes of a voice cloned from a recording."""

    SHORT = "short"
    LONG = "long"
    QUIET = "quiet"
    CLIPPED = "clipped"
    NOISY = "noisy"
    MADE_BY_ENCORE = "made-by-encore"


@dataclass(frozen=True, kw_only=True)
class ReferenceReport:
    """What a recording that can be cloned from is like.

    Attributes:
        seconds: its length.
        speech_dbfs: level of the voice, dB below full scale.
        noise_dbfs: level of the quietest moments.
        clipped_share: share of samples at full scale, 0 to 1.
        envelope: peak of each of ENVELOPE_BARS equal parts, 0 to 1, for drawing.
        concerns: in order of weight; empty for a good recording.
    """

    seconds: float
    speech_dbfs: float
    noise_dbfs: float
    clipped_share: float
    envelope: tuple[float, ...]
    concerns: tuple[Concern, ...]

    @property
    def speech_over_noise_db(self) -> float:
        """How far the voice stands out of the background."""
        return self.speech_dbfs - self.noise_dbfs


def report_on(recording: Recording) -> ReferenceReport:
    """Measure a recording that `check_reference` has let through, and say what is not ideal about it."""
    samples = recording.samples
    levels = frame_levels_dbfs(samples, recording.sample_rate)
    speech_dbfs, noise_dbfs = (float(np.percentile(levels, share)) for share in (SPEECH_PERCENTILE, NOISE_PERCENTILE))
    clipped = clipped_share(samples)
    shortest, longest = COMFORTABLE_SECONDS
    found = {
        Concern.CLIPPED: clipped > CLIPPED_SHARE,
        Concern.NOISY: speech_dbfs - noise_dbfs < NOISY_RATIO_DB,
        Concern.QUIET: speech_dbfs < QUIET_SPEECH_DBFS,
        Concern.SHORT: recording.seconds < shortest,
        Concern.LONG: recording.seconds > longest,
    }
    return ReferenceReport(
        seconds=recording.seconds,
        speech_dbfs=speech_dbfs,
        noise_dbfs=noise_dbfs,
        clipped_share=clipped,
        envelope=peak_envelope(samples, ENVELOPE_BARS),
        concerns=tuple(concern for concern, applies in found.items() if applies),
    )


def frame_levels_dbfs(samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float64]:
    """Mean level of each frame of FRAME_SECONDS in dBFS, at least MIN_DBFS; (samples,) -> (frames,), never empty."""
    assert len(samples), "a checked recording has samples"
    length = max(1, round(FRAME_SECONDS * sample_rate))
    num_frames = max(1, len(samples) // length)
    frames = samples[: num_frames * length].reshape(num_frames, -1).astype(np.float64)
    power = np.mean(np.square(frames), axis=1)
    levels: NDArray[np.float64] = 10.0 * np.log10(np.maximum(power, 10.0 ** (MIN_DBFS / 10.0)))
    return levels


def clipped_share(samples: NDArray[np.float32]) -> float:
    """Share of samples (samples,) at full scale, 0 to 1; 0 without samples."""
    return float(np.mean(np.abs(samples) >= CLIPPED_LEVEL)) if samples.size else 0.0


def peak_envelope(samples: NDArray[np.float32], num_bars: int) -> tuple[float, ...]:
    """Largest magnitude, 0 to 1, in each of `num_bars` parts of `samples` (samples,); all zero without samples."""
    if not len(samples):
        return (0.0,) * num_bars
    starts = np.arange(num_bars) * len(samples) // num_bars
    # reduceat takes the sample at the start where a part is empty, which is right for fewer samples than bars.
    peaks = np.maximum.reduceat(np.abs(samples), starts)
    return tuple(float(peak) for peak in np.minimum(peaks, 1.0))


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
    if recording.seconds < limits.min_seconds:
        raise RecordingTooShort(name, seconds=recording.seconds, min_seconds=limits.min_seconds)
    if recording.seconds > limits.max_seconds:
        raise RecordingTooLong(name, seconds=recording.seconds, max_seconds=limits.max_seconds)
    peak = float(np.abs(samples).max(initial=0.0))
    if peak > limits.max_peak:
        raise RecordingDamaged(name, problem=f"its loudest sample is {peak:.0f} times full scale")
    for measure, level_dbfs, min_dbfs in (
        ("peak", _to_dbfs(peak), limits.min_peak_dbfs),
        ("loudest second", _to_dbfs(_loudest_second_rms(samples, recording.sample_rate)), limits.min_rms_dbfs),
    ):
        if level_dbfs < min_dbfs:
            raise RecordingSilent(name, measure=measure, level_dbfs=level_dbfs, min_dbfs=min_dbfs)


def _loudest_second_rms(samples: NDArray[np.float32], sample_rate: int) -> float:
    """The highest mean level of any second that starts at a whole quarter second."""
    hop = max(1, sample_rate // 4)
    starts = np.arange(0, len(samples), hop)
    quarter_energies = np.add.reduceat(np.square(samples, dtype=np.float64), starts)
    second_energies = np.convolve(quarter_energies, np.ones(4))
    return math.sqrt(second_energies.max() / min(len(samples), 4 * hop))


def _to_dbfs(amplitude: float) -> float:
    return 20.0 * math.log10(amplitude) if amplitude > 0.0 else -math.inf
