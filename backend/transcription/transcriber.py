"""What everything that turns speech into text looks like from outside."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from backend.transcription.transcript import Transcript

TRANSCRIBER_HZ = 16_000
"""The rate at which transcribers and voice activity detection listen."""

EMBEDDED_TRANSCRIBER = "the embedded transcriber"
"""The name of the one that comes with the program."""


class Transcriber(Protocol):
    """Listens to speech and writes it down, with the time of each word."""

    @property
    def name(self) -> str:
        """Which model listens; kept with each transcript it made."""
        ...

    @property
    def piece_seconds(self) -> float:
        """The longest sound it hears at once; longer recordings are handed over in pieces, cut at pauses."""
        ...

    def transcribe(self, samples_16k: NDArray[np.float32], language: str | None = None) -> Transcript:
        """Write down mono samples (samples,) at TRANSCRIBER_HZ; without `language` it is recognised."""
        ...
