"""One loudness for all clips, and no silence around them: what a model should not have to learn from a data set."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TARGET_LUFS = -23.0
"""EBU R 128: leaves room for the peaks of almost any voice."""

PEAK_DBFS = -1.0
"""Encoders that come later overshoot by a little; this keeps them from clipping."""

EDGE_SILENCE_SECONDS = 0.1
"""Enough for the soft begin and end of any sound."""

# BS.1770 measures in blocks of this length; shorter sounds are repeated until they fill one.
_BLOCK_SECONDS = 0.4
# Weighting over 400 ms lets nothing quieter count.
_SILENCE_LUFS = -70.0
_FRAME_SECONDS = 0.01
_MIN_DBFS = -100.0
# Between an "f" and the loudest vowel of a sentence there are 30 dB. What is further down than 45 is not heard.
_SOFTEST_SOUND_DB = 30.0
_INAUDIBLE_DB = 45.0
_OVER_NOISE_DB = 6.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Levelled:
    """Samples at the target loudness, and what was done to them.

    `loudness_lufs` is what they had before, minus infinity for silence. Where `is_peak_limited`, their peaks kept
    them below the target.
    """

    samples: NDArray[np.float32]
    loudness_lufs: float
    gain_db: float
    is_peak_limited: bool


def measure_loudness(samples: NDArray[np.float32], sample_rate: int) -> float:
    """Integrated loudness in LUFS (ITU-R BS.1770) of mono samples (samples,); minus infinity for silence."""
    if not len(samples):
        return -math.inf
    num_samples = math.ceil(_BLOCK_SECONDS * sample_rate) + 1
    block = samples if len(samples) >= num_samples else np.resize(samples, num_samples)
    if not np.any(block):
        return -math.inf
    # Here: it brings along all of SciPy's filters, and most processes that read sound measure nothing.
    import pyloudnorm  # noqa: PLC0415 - see above

    # pyloudnorm divides by the number of audible blocks; without any it warns about a mean of nothing.
    with np.errstate(all="ignore"):
        loudness = float(pyloudnorm.Meter(sample_rate).integrated_loudness(block.astype(np.float64)))
    return loudness if loudness >= _SILENCE_LUFS else -math.inf


def normalise_loudness(samples: NDArray[np.float32], sample_rate: int) -> Levelled:
    """Bring samples (samples,) to TARGET_LUFS, or as near as a highest peak of PEAK_DBFS allows.

    The gain is the same everywhere: nothing is compressed. Silence stays as it is.
    """
    loudness = measure_loudness(samples, sample_rate)
    if math.isinf(loudness):
        return Levelled(samples=samples, loudness_lufs=loudness, gain_db=0.0, is_peak_limited=False)
    wanted_db = TARGET_LUFS - loudness
    headroom_db = PEAK_DBFS - 20.0 * math.log10(float(np.abs(samples).max()))
    gain_db = min(wanted_db, headroom_db)
    return Levelled(
        samples=(samples * 10.0 ** (gain_db / 20.0)).astype(np.float32),
        loudness_lufs=loudness,
        gain_db=gain_db,
        is_peak_limited=headroom_db < wanted_db,
    )


def audible_range(
    samples: NDArray[np.float32], sample_rate: int, *, keep_seconds: float = EDGE_SILENCE_SECONDS
) -> tuple[int, int]:
    """First and end sample of what remains when silence at both ends is cut to `keep_seconds`.

    The threshold is below the softest consonants: with a loud background, too much is kept rather than too little.
    Digital silence is kept whole.
    """
    frame = max(1, round(_FRAME_SECONDS * sample_rate))
    levels = _levels_dbfs(samples, frame)
    loud = np.flatnonzero(levels > _silence_threshold_dbfs(levels)) if len(levels) else np.zeros(0, np.intp)
    if not len(loud):
        return 0, len(samples)
    keep = round(keep_seconds * sample_rate)
    return max(0, int(loud[0]) * frame - keep), min(len(samples), (int(loud[-1]) + 1) * frame + keep)


def trim_silence(
    samples: NDArray[np.float32], sample_rate: int, *, keep_seconds: float = EDGE_SILENCE_SECONDS
) -> NDArray[np.float32]:
    """Samples (samples,) with at most `keep_seconds` of silence before and after the sound."""
    begin, end = audible_range(samples, sample_rate, keep_seconds=keep_seconds)
    return samples[begin:end]


def _levels_dbfs(samples: NDArray[np.float32], frame: int) -> NDArray[np.float64]:
    """Level of each frame, the last one filled up with silence: (samples,) -> (frames,)."""
    num_frames = -(-len(samples) // frame)
    padded = np.pad(samples.astype(np.float64), (0, num_frames * frame - len(samples)))
    power = np.square(padded).reshape(num_frames, frame).mean(axis=1)
    levels: NDArray[np.float64] = 10.0 * np.log10(np.maximum(power, 10.0 ** (_MIN_DBFS / 10.0)))
    return levels


def _silence_threshold_dbfs(levels: NDArray[np.float64]) -> float:
    speech, noise = float(np.percentile(levels, 95)), float(np.percentile(levels, 5))
    return max(speech - _INAUDIBLE_DB, min(noise + _OVER_NOISE_DB, speech - _SOFTEST_SOUND_DB), _MIN_DBFS)
