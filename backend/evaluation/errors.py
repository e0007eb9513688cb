"""What can go wrong with evaluating, in words for the user."""

from __future__ import annotations

from training.model.errors import EncoreError


class EvaluationError(EncoreError):
    """Nothing can be evaluated."""
