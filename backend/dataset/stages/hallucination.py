"""When a transcript should not be believed, in words for whoever recorded it."""

from __future__ import annotations

from backend.transcription.hallucination import HallucinationSign, doubts_about
from backend.transcription.transcript import Transcript

_DOUBTS = {
    HallucinationSign.NO_SPEECH: "The transcriber hears no speech here, so the text may be made up. "
    "Listen, and type what is said.",
    HallucinationSign.RUNS_IN_CIRCLES: "The transcript repeats itself and is probably made up. "
    "Listen, and type what is said.",
    HallucinationSign.GUESSED: "The transcriber was guessing here. Listen, and type what is said.",
}


def doubt_about(transcript: Transcript) -> str:
    """Why a transcript should not be believed, as a sentence; empty where it should."""
    return next((_DOUBTS[doubt] for doubt in doubts_about(transcript)), "")
