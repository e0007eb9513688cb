"""What can go wrong with takes that are kept."""

from __future__ import annotations

from training.model.errors import EncoreError


class TakeNotFound(EncoreError):
    """There is no such take, or not any more."""


class TakeTooShort(EncoreError):
    """What was spoken cannot be the text."""


class PartNotRepeatable(EncoreError):
    """A part of a take cannot be spoken again as it was spoken first."""
