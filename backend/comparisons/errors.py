"""What can go wrong with comparisons."""

from __future__ import annotations

from training.model.errors import EncoreError


class ComparisonError(EncoreError):
    """Voices cannot be compared as requested, or a vote is not valid."""
