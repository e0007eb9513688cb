"""Errors of datasets, except for those that `training.data.code_rows` finds in a finished one."""

from __future__ import annotations

from training.model.errors import EncoreError


class DatasetRefused(EncoreError):
    """The request cannot be fulfilled for this dataset, or not now."""


class DatasetNotFound(DatasetRefused):
    """No dataset or clip has this name."""


class DatasetNameRefused(DatasetRefused):
    """The name cannot be that of a folder on every machine."""


class DatasetBusy(DatasetRefused):
    """Another process is building or editing this dataset."""


class DatasetInUse(DatasetRefused):
    """A fine-tune is reading this dataset."""


class BuildCancelled(DatasetRefused):
    """The user stopped the build; what it had finished is kept and used next time."""


class DiskFull(DatasetRefused):
    """The disk is too full for a build; what it had finished is kept and used next time."""


class NothingToBuild(DatasetRefused):
    """No recording, or no clip of any recording, can be trained on."""


class EditRefused(DatasetRefused):
    """An edit that would leave no usable clip: an empty text, a cut outside of the recording."""
