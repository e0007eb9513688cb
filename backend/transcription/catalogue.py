"""The published Whisper models: what each is called, how large it is, and what it is good for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from backend.transcription.errors import WhisperUnavailable


@dataclass(frozen=True, kw_only=True)
class PublishedWhisper:
    """A model that openai-whisper publishes.

    Attributes:
        file_name: of its weights in the cache folder.
        num_bytes: of that file; openai-whisper's own table has addresses but no sizes.
        preference: for evaluation, the lowest first: small models, because they run in parallel with training.
    """

    name: str
    file_name: str
    num_bytes: int
    purpose: str
    preference: int

    @property
    def path(self) -> Path:
        """Where its weights are, once they have been downloaded."""
        return cache_folder() / self.file_name


PUBLISHED_WHISPERS = (
    PublishedWhisper(
        name="tiny", file_name="tiny.pt", num_bytes=75_572_083, purpose="fast, less accurate", preference=6
    ),
    PublishedWhisper(
        name="base", file_name="base.pt", num_bytes=145_262_807, purpose="the default, for clear speech", preference=1
    ),
    PublishedWhisper(
        name="small", file_name="small.pt", num_bytes=483_617_219, purpose="better, also with accents", preference=2
    ),
    PublishedWhisper(
        name="medium", file_name="medium.pt", num_bytes=1_528_008_539, purpose="good in many languages", preference=4
    ),
    PublishedWhisper(
        name="large-v3", file_name="large-v3.pt", num_bytes=3_087_371_615, purpose="most accurate", preference=5
    ),
    PublishedWhisper(
        name="turbo",
        file_name="large-v3-turbo.pt",
        num_bytes=1_617_941_637,
        purpose="nearly as accurate as large-v3, faster",
        preference=3,
    ),
)
DEFAULT_WHISPER = "base"

NO_TRANSCRIBER = "none"
"""In place of a model's name: nothing is transcribed, and only recordings that come with a text can be used."""

# "mini" was a small Whisper that came with the program, which older datasets and jobs name.
AUTOMATIC = (None, "", "mini")


def cache_folder() -> Path:
    """Where openai-whisper keeps its downloads."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "whisper")


def published_names() -> str:
    """All names, for a sentence."""
    *others, last = (model.name for model in PUBLISHED_WHISPERS)
    return f"{', '.join(others)} or {last}"


def check_whisper(name: str | None) -> None:
    """Refuse a name that is no published model, no path, and neither none nor automatic. Raises WhisperUnavailable."""
    is_known = name in AUTOMATIC or name == NO_TRANSCRIBER or name in [model.name for model in PUBLISHED_WHISPERS]
    if not is_known and not os.path.exists(os.path.expanduser(name or "")):
        raise not_a_whisper(name or "")


def not_a_whisper(name: str) -> WhisperUnavailable:
    """The error for a name that is nothing."""
    return WhisperUnavailable(
        f"{name!r} is not a Whisper model. Use {published_names()}, or the path of a weights file."
    )
