"""What can go wrong with datasets, beside what `training.data.code_rows` finds wrong in a finished one."""

from __future__ import annotations

from training.model.errors import EncoreError


class DatasetRefused(EncoreError):
    """What was asked for cannot be done with this dataset, or not now."""


class DatasetNotFound(DatasetRefused):
    """There is no dataset, or no clip, of this name."""


class DatasetNameRefused(DatasetRefused):
    """The name cannot be that of a folder on every machine."""


class DatasetBusy(DatasetRefused):
    """Another process is building or editing this dataset."""


class BuildCancelled(DatasetRefused):
    """A person stopped the build; what it had finished is kept and used next time."""


class DiskFull(DatasetRefused):
    """There is no room for what a build makes; what it had finished is kept and used next time."""


class NothingToBuild(DatasetRefused):
    """No recording, or no clip of any recording, can be trained on."""


class EditRefused(DatasetRefused):
    """An edit that would leave no usable clip: an empty text, a cut outside of the recording."""
