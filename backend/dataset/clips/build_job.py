"""The request for a build: everything that a build process is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, ValidationError, model_validator

from backend.audio.limits import DecodingLimits, recording_decoding
from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.errors import DatasetNameInvalid
from backend.errors import SettingsError
from backend.voices.consent import Consent, hash_of_file
from training.former_names import with_current_names

# Also the name of a folder, on file systems that ignore case and in shells that expand characters.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# As jobs of version 0.1 spell them.
_FORMER_NAMES = {"longest_hours": "max_hours", "largest_megabytes": "max_megabytes"}


class SourceConsent(BaseModel):
    """The consent for what some paths of a job hold at the time of its build."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paths: tuple[str, ...]
    consent: Consent


class BuildJob(BaseModel):
    """One build; building again with the same job repeats nothing that is done already."""

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
        default=None,
        description="model copies in Ray; None chooses by the machine, 0 builds in this process without Ray",
    )
    device: str = "auto"
    keeps_originals: bool = Field(default=False, description="whether the original files are kept as well")
    consents: tuple[SourceConsent, ...] = Field(
        default=(),
        description="who agreed to the cloning of which recordings; stored by what is in them, not with the request",
    )
    max_hours: PositiveFloat = 2.0
    max_megabytes: PositiveFloat = 500.0

    @property
    def decoding(self) -> DecodingLimits:
        """Limits for decoding each recording."""
        return recording_decoding(max_seconds=self.max_hours * 3600.0, max_bytes=round(self.max_megabytes * 1e6))

    def added_to(self, before: BuildJob) -> Self:
        """The request for an earlier one's recordings and for these; a file whose content is there is not added again.

        What the earlier one says of language and transcriber holds where this one leaves it open.
        """
        there = {_content_of(path) for path in before.recordings}
        new = tuple(path for path in self.recordings if _content_of(path) not in there)
        texts = tuple(path for path in self.transcripts if path not in before.transcripts)
        return self.model_copy(
            update={
                "name": before.name,
                "recordings": (*before.recordings, *new),
                "transcripts": (*before.transcripts, *texts),
                "language": before.language if self.language == "auto" else self.language,
                "whisper": self.whisper or before.whisper,
                "gates": before.gates,
                "keeps_originals": self.keeps_originals or before.keeps_originals,
                "max_hours": max(self.max_hours, before.max_hours),
                "max_megabytes": max(self.max_megabytes, before.max_megabytes),
            }
        )

    def agreed_by(self, consent: Consent | None) -> Self:
        """The same request with a consent for all of its recordings that have none."""
        have = {path for one in self.consents for path in one.paths}
        paths = tuple(path for path in self.recordings if path not in have)
        if consent is None or not paths:
            return self
        return self.model_copy(update={"consents": (*self.consents, SourceConsent(paths=paths, consent=consent))})

    @classmethod
    def parse(cls, name: str, recordings: Sequence[Path], **options: Any) -> Self:  # Any: checked by the model
        """Describe a build as a form or the command line gives it; `options` are further fields, as typed.

        Raises:
            DatasetNameInvalid: the name cannot be used.
            SettingsError: a number is out of its range.
        """
        model = str(options.pop("model", cls.model_fields["model"].default))
        try:
            return cls(
                name=check_name(name),
                recordings=absolute_paths(recordings),
                model=str(Path(model).absolute()) if Path(model).is_dir() else model,
                language=options.pop("language", "").strip().lower() or "auto",
                transcripts=absolute_paths(options.pop("transcripts", ())),
                **options,
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise SettingsError(f"{first['loc'][0]} is {first['input']!r}: {first['msg']}. Correct it.") from error

    @model_validator(mode="before")
    @classmethod
    def _accept_former_names(cls, raw: Any) -> Any:  # Any: whatever is to be validated
        return with_current_names(raw, _FORMER_NAMES)


def check_name(name: str) -> str:
    """Return `name` if a dataset may be called so.

    Raises:
        DatasetNameInvalid: it may not.
    """
    if not _NAME.fullmatch(name):
        raise DatasetNameInvalid(
            f"{name[:80]!r} cannot be the name of a dataset. Use letters, digits, - and _, at most 64 of them."
        )
    return name


def _content_of(path: str) -> str:
    """What tells a file from others: its content, or the path of a folder or of what is gone."""
    return hash_of_file(Path(path)) if Path(path).is_file() else path


def absolute_paths(paths: Sequence[Path]) -> tuple[str, ...]:
    """Paths as a job carries them: another process may work in another folder."""
    return tuple(str(path.expanduser().absolute()) for path in paths)
