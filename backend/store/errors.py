"""What can go wrong with what Encore remembers."""

from __future__ import annotations

from training.model.errors import EncoreError


class StoreError(EncoreError):
    """The database cannot be opened, read or written."""


class StoreTooNew(StoreError):
    """The database was written by a later version of Encore."""


class StoreDamaged(StoreError):
    """The database is damaged or gone; the message says which copy there is of it."""


class StoreBusy(StoreError):
    """Another process holds the database for longer than any of Encore's own does."""


class TrashNotFound(StoreError):
    """It was not deleted, was restored, or is gone for good."""


class TrashNameTaken(StoreError):
    """What was deleted cannot come back under its name, which another thing has."""


class TrashBusy(StoreError):
    """Another process works on what is to be restored or removed."""


class RowDamaged(StoreError):
    """What the database says of one thing cannot be understood; everything else can be used."""


class ArtifactError(StoreError):
    """A stored file cannot be written or read."""
