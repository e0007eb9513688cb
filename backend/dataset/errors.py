"""Errors of datasets, except for those that `training.data.code_rows` finds in a finished one."""

from __future__ import annotations

from training.model.errors import EncoreError


class DatasetError(EncoreError):
    """The request cannot be fulfilled for this dataset, or not now."""


class DatasetNotFound(DatasetError):
    """No dataset or clip has this name."""


class DatasetNameInvalid(DatasetError):
    """The name cannot be that of a folder on every machine."""


class DatasetNameTaken(DatasetError):
    """A dataset of this name is made of other recordings, which a build would take out of it."""


class DatasetBusy(DatasetError):
    """Another process is building or editing this dataset."""


class DatasetInUse(DatasetError):
    """A fine-tune is reading this dataset."""


class BuildCancelled(DatasetError):
    """The user stopped the build; what it had finished is kept and used next time."""


class DiskFull(DatasetError):
    """The disk is too full for a build; what it had finished is kept and used next time."""


class DatasetEmpty(DatasetError):
    """No recording, or no clip of any recording, can be trained on."""


class EditInvalid(DatasetError):
    """An edit that would leave no usable clip: an empty text, a cut outside of the recording."""
