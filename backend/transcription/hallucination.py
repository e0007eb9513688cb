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


def find_hallucination_signs(transcript: Transcript) -> tuple[HallucinationSign, ...]:
    """Every sign that a transcript was made up, the strongest first."""
    found = {
        HallucinationSign.NO_SPEECH: transcript.no_speech_probability > MAX_NO_SPEECH_PROBABILITY,
        HallucinationSign.REPETITION: transcript.compression_ratio > MAX_COMPRESSION_RATIO,
        HallucinationSign.GUESS: transcript.mean_log_probability < MIN_MEAN_LOG_PROBABILITY,
    }
    return tuple(sign for sign, applies in found.items() if applies)
