"""What can go wrong with takes that are kept."""

from __future__ import annotations

from training.model.errors import EncoreError


class TakeNotFound(EncoreError):
    """There is no such take, or not any more."""
