"""What can go wrong with what Encore remembers."""

from __future__ import annotations

from training.model.errors import EncoreError


class StoreError(EncoreError):
    """The database cannot be opened, read or written."""


class StoreTooNew(StoreError):
    """The database was written by a later version of Encore."""


class ArtifactError(StoreError):
    """A stored file cannot be written or read."""
