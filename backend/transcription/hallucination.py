"""Reasons to distrust a transcript: the numbers by which Whisper's inventions are told from what was said."""

from __future__ import annotations

from enum import StrEnum

from backend.transcription.transcript import Transcript


class HallucinationSign(StrEnum):
    """Why a transcript may be made up."""

    NO_SPEECH = "no_speech"
    RUNS_IN_CIRCLES = "runs_in_circles"
    GUESSED = "guessed"


def doubts_about(
    transcript: Transcript,
    *,
    maximum_no_speech_probability: float = 0.6,
    maximum_compression_ratio: float = 2.4,
    minimum_mean_log_probability: float = -1.0,
) -> tuple[HallucinationSign, ...]:
    """What speaks against a transcript; the thresholds are those that Whisper's authors use."""
    found = {
        HallucinationSign.NO_SPEECH: transcript.no_speech_probability > maximum_no_speech_probability,
        HallucinationSign.RUNS_IN_CIRCLES: transcript.compression_ratio > maximum_compression_ratio,
        HallucinationSign.GUESSED: transcript.mean_log_probability < minimum_mean_log_probability,
    }
    return tuple(doubt for doubt, applies in found.items() if applies)
