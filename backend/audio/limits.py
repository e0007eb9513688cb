"""Which files are accepted, and how much effort one may cost; every number with its reason."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class DecodingLimits:
    """Bounds of one decoding; sizes in bytes, times in seconds, rates in Hz.

    The size of a file says little (three hours of silence are 1.7 MB of FLAC and 2 GB of samples), so what
    counts is the sound that comes out; the header's word for it is not trusted.
    """

    # Five minutes of 96 kHz stereo in 32-bit float, the largest sensible form, are 230 MB.
    max_bytes: int = 256 * _MIB
    # The most a cloning reference may have; a dataset recording is decoded with its own limit.
    max_seconds: float = 300.0
    # 7.1 is the largest layout that recorders and editors write; beyond are measuring instruments and attacks.
    max_channels: int = 8
    # Telephones record at 8 kHz; under 4 kHz there is no intelligible speech. Interfaces end at 384 kHz.
    min_sample_rate: int = 4_000
    max_sample_rate: int = 384_000
    # On top of what the started interpreter holds. Decoding block by block needs under 40 MB; an index of a long
    # MP4 and a resampler from 384 kHz need some more.
    memory_bytes: int = 256 * _MIB
    # Five minutes take about two seconds of one slow core; sixty leave room for a loaded laptop.
    cpu_seconds: int = 60
    # Wall clock also covers waiting: a disk that stalls, a machine that swaps.
    wall_seconds: float = 120.0


def recording_decoding(*, max_seconds: float = 2 * 60 * 60.0, max_bytes: int = 500_000_000) -> DecodingLimits:
    """Limits for the recordings of a data set, which may be hours long; effort grows with the permitted length."""
    minutes = max_seconds / 60.0
    return DecodingLimits(
        max_bytes=max_bytes,
        max_seconds=max_seconds,
        # Five seconds a minute are more than ten times what any codec takes on a slow core.
        cpu_seconds=60 + round(5 * minutes),
        wall_seconds=120.0 + 15 * minutes,
    )


@dataclass(frozen=True, kw_only=True)
class ReferenceLimits:
    """What a recording must be like to clone a voice from it; levels in dB relative to full scale."""

    # Less than a second holds two or three syllables: the speaker embedding is then mostly chance.
    min_seconds: float = 1.0
    # Longer prompts cost time and context with each sentence and add nothing to the likeness.
    max_seconds: float = 300.0
    # Speech peaks at -30 dBFS even in timid recordings; a muted microphone leaves -70 dBFS and less.
    min_peak_dbfs: float = -60.0
    # Of the loudest second, so that pauses do not count: quiet speech has -45 dBFS, hiss with a click -60.
    min_rms_dbfs: float = -55.0
    # +18 dB. Float files may exceed full scale a little; a larger peak means integers stored as floats.
    max_peak: float = 8.0


REFERENCE_DECODING = DecodingLimits()
REFERENCE_LIMITS = ReferenceLimits()
