"""What can go wrong with datasets, beside what `training.data.code_rows` finds wrong in a finished one."""

from __future__ import annotations

from training.data.code_rows import DatasetError


class DatasetNotFound(DatasetError):
    """There is no dataset, or no clip, of this name."""


class DatasetNameRefused(DatasetError):
    """The name cannot be that of a folder on every machine."""


class DatasetBusy(DatasetError):
    """Another process is building or editing this dataset."""


class BuildCancelled(DatasetError):
    """A person stopped the build; what it had finished is kept and used next time."""


class NothingToBuild(DatasetError):
    """No recording, or no clip of any recording, can be trained on."""


class EditRefused(DatasetError):
    """An edit that would leave no usable clip: an empty text, a cut outside of the recording."""
