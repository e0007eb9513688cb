"""Why a take ended: here, where nothing heavy is imported, for those who only read of takes."""

from __future__ import annotations

from enum import StrEnum


class FinishReason(StrEnum):
    """Why a take ended: end of speech, frame cap, or cancelled by the client."""

    EOS = "eos"
    LENGTH = "length"
    CANCELLED = "cancelled"
