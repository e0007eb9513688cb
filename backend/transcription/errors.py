"""What can go wrong between sound and text."""

from __future__ import annotations

from training.model.errors import EncoreError


class TranscriptionError(EncoreError):
    """Speech cannot be written down."""


class LanguageUnsupported(TranscriptionError):
    """The transcriber does not know the language."""


class WhisperUnavailable(TranscriptionError):
    """There are no weights for the model that was asked for; the message says how to get them here."""


class WhisperDamaged(TranscriptionError):
    """A weights file is not what it should be."""
