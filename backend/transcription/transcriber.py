"""What every transcriber offers, and the weights that it is loaded from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from backend.transcription.transcript import Transcript

TRANSCRIBER_HZ = 16_000
"""The rate of the samples that transcribers and voice activity detection take."""

WHISPER_PIECE_SECONDS = 24.0
"""Of the 30 seconds a Whisper could hear: with a full window it tends to stop before the end."""


class Transcriber(Protocol):
    """Turns speech into text, with the time of each word."""

    @property
    def name(self) -> str:
        """Which model it is."""
        ...

    @property
    def piece_seconds(self) -> float:
        """The longest sound it takes at once; longer recordings are cut at pauses first."""
        ...

    def transcribe(self, samples_16k: NDArray[np.float32], language: str | None = None) -> Transcript:
        """Transcribe mono samples (samples,) at TRANSCRIBER_HZ; without `language` it is detected.

        Raises:
            LanguageUnsupported: it does not know the language.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class WhisperWeights:
    """A weights file that is on this machine.

    Attributes:
        name: what the model is called in transcripts and on the page.
        identity: SHA-256 of the file; transcripts are cached under it.
        published_name: under which openai-whisper knows it; None for a file of the user's own.
        piece_seconds: the longest sound it takes at once.
        silence_seconds: appended to the sound; None fills the window, as Whisper does.
    """

    path: Path
    name: str
    identity: str
    published_name: str | None = None
    piece_seconds: float = WHISPER_PIECE_SECONDS
    silence_seconds: float | None = None
