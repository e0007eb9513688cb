"""What a person asked for when building a dataset; frozen, and all a build process is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, model_validator

from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.errors import DatasetNameRefused
from training.renamed import with_current_names

# Also the name of a folder, on file systems that ignore case and in shells that expand characters.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


# As jobs of version 0.1 spell them.
_FORMER_NAMES = {"longest_hours": "max_hours", "largest_megabytes": "max_megabytes"}


class BuildJob(BaseModel):
    """One build; building again with the same job does nothing that is done already."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    recordings: tuple[str, ...] = Field(description="files, folders and archives, as absolute paths")
    model: str = "mini"
    whisper: str | None = Field(
        default=None, description="name or path of a Whisper model; None finds one; none uses none"
    )
    language: str = "auto"
    transcripts: tuple[str, ...] = Field(default=(), description="files or folders with texts, as absolute paths")
    gates: GateSettings = GateSettings()
    num_actors: NonNegativeInt | None = Field(
        default=None, description="model copies at work in Ray; None suits the machine, 0 works in this process alone"
    )
    device: str = "auto"
    keeps_originals: bool = Field(
        default=False, description="whether files as they were given are kept beside what was made of them"
    )
    max_hours: PositiveFloat = 2.0
    max_megabytes: PositiveFloat = 500.0

    @model_validator(mode="before")
    @classmethod
    def _accept_former_names(cls, raw: Any) -> Any:  # Any: whatever is to be validated
        return with_current_names(raw, _FORMER_NAMES)


def check_name(name: str) -> str:
    """Return `name` if a dataset may be called so.

    Raises:
        DatasetNameRefused: it may not.
    """
    if not _NAME.fullmatch(name):
        raise DatasetNameRefused(
            f"{name[:80]!r} cannot be the name of a dataset. Use letters, digits, - and _, at most 64 of them."
        )
    return name


def absolute_paths(paths: tuple[Path, ...] | list[Path]) -> tuple[str, ...]:
    """Paths as a job carries them: another process may work in another folder."""
    return tuple(str(path.expanduser().absolute()) for path in paths)
