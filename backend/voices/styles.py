"""Styles of a voice: the ways in which it can be told to speak, each with the clip that its takes continue."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from backend.voices.errors import VoiceStyleUnknown
from training.style_name import clean_style

STYLES_FOLDER = "styles"
MAX_STYLES = 50
"""More are hard to choose among; a voice file has room for so many clips."""

StyleName = Annotated[str, Field(min_length=1), AfterValidator(clean_style)]


class VoiceStyle(BaseModel):
    """A style as it is stored with a voice."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: StyleName
    transcript: str | None = Field(default=None, max_length=5000)
    """What its clip says, word for word; None where the voice's checkpoint takes the name as its instruction."""

    @property
    def file_name(self) -> str:
        """Of its clip within the folder of styles; not the name, which any file system need not take."""
        return f"{hashlib.sha256(self.name.encode()).hexdigest()[:16]}.wav"


class StyleClip(BaseModel):
    """A style that a voice is to have, with the clip to continue; none where the checkpoint follows instructions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: StyleName
    clip: Path | None = None
    text: str | None = None


def find_style(styles: Sequence[VoiceStyle], word: str) -> VoiceStyle | None:
    """The style that a word names, in any case; None if it names none."""
    plain = " ".join(word.split()).lower()
    return next((style for style in styles if style.name == plain), None)


def require_style(voice: str, styles: Sequence[VoiceStyle], word: str) -> VoiceStyle:
    """The style that a word names.

    Raises:
        VoiceStyleUnknown: it names none; the message lists those that the voice has.
    """
    found = find_style(styles, word)
    if found is not None:
        return found
    if not styles:
        raise VoiceStyleUnknown(
            f"The voice {voice} has no styles, so {word[:60]!r} cannot be one. Leave the style out."
        )
    raise VoiceStyleUnknown(f"The voice {voice} has no style {word[:60]!r}. It has: {in_words(styles)}. Choose one.")


def in_words(styles: Iterable[VoiceStyle]) -> str:
    """`calm, excited`."""
    return ", ".join(style.name for style in styles)
