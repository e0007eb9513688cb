"""Signs that a transcript was made up, not heard: the thresholds of Whisper's authors."""

from __future__ import annotations

from enum import StrEnum

from backend.transcription.transcript import Transcript

MAX_NO_SPEECH_PROBABILITY = 0.6
MAX_COMPRESSION_RATIO = 2.4
MIN_MEAN_LOG_PROBABILITY = -1.0


class HallucinationSign(StrEnum):
    """Why a transcript may be made up."""

    NO_SPEECH = "no_speech"
    REPETITION = "repetition"
    GUESS = "guess"


def find_hallucination_signs(
    transcript: Transcript,
    *,
    max_no_speech_probability: float = MAX_NO_SPEECH_PROBABILITY,
    max_compression_ratio: float = MAX_COMPRESSION_RATIO,
    min_mean_log_probability: float = MIN_MEAN_LOG_PROBABILITY,
) -> tuple[HallucinationSign, ...]:
    """Every sign that a transcript was made up, the strongest first."""
    found = {
        HallucinationSign.NO_SPEECH: transcript.no_speech_probability > max_no_speech_probability,
        HallucinationSign.REPETITION: transcript.compression_ratio > max_compression_ratio,
        HallucinationSign.GUESS: transcript.mean_log_probability < min_mean_log_probability,
    }
    return tuple(sign for sign, applies in found.items() if applies)
