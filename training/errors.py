"""Errors of a fine-tune; every message says what happened and what to do."""

from __future__ import annotations

from training.model.errors import EncoreError


class TrainingError(EncoreError):
    """A fine-tune cannot continue."""


class JobInvalid(TrainingError):
    """A job is invalid: a misspelt option, a value out of range, options that exclude each other."""


class PreflightError(TrainingError):
    """This machine, or the data, cannot run the job; nothing was started."""


class ResumeError(TrainingError):
    """A checkpoint of a run is missing, damaged, or belongs to another run."""


class AgreedError(TrainingError):
    """A fine-tune cannot continue, and all of its workers say so at the same call; they can still act together."""


class CheckpointDiskFull(AgreedError):
    """A checkpoint could not be written because the disk is full; earlier ones are unaffected."""


class StorageError(EncoreError):
    """The object storage cannot be used as it is, or this machine has no room for what is fetched from it."""


class StorageRefused(StorageError):
    """The storage does not accept the credentials, or does not allow what was asked of it."""


class StorageUnreachable(StorageError):
    """The storage did not answer, or was too busy, for longer than it was tried."""


class StorageDamaged(StorageError):
    """What the storage holds is not what was put there."""
