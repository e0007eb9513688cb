"""What can go wrong with Ray, in words for the user."""

from __future__ import annotations

from training.model.errors import EncoreError


class ClusterError(EncoreError):
    """Ray could not be started or reached, or has too little to give."""
