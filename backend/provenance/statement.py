"""What every file that leaves says of itself: made by a model, which one, when, and by what kind of consent.

Whose voice it is and what is said only where that was asked for: a file is passed on, and its statement with it.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

GENERATOR = "Encore"
VERSION = "0.1.0"
"""This program's; also in pyproject.toml, which does not come along where the code is shipped to a cluster."""

_WORDS = "Synthetic speech, made by Encore"
_Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_UNTOLD_IN_TAGS = frozenset({"speaker", "text"})
"""A header and a comment have too little room for a text, and travel further than the file."""

MAX_SPEAKER_LENGTH, MAX_STATED_LENGTH = 200, 100_000
_Word = Annotated[str, StringConstraints(pattern=r"^[\w.+-]{1,40}$")]


class SpeechStatement(BaseModel):
    """One take's statement; in its signature, and without speaker and text in its comment tag and the response header.

    Attributes:
        id: drawn at random; by it an installation finds the take among its own.
        version: of the Encore that spoke.
        checkpoint: SHA-256 of its weights, see `checkpoint_digest`; None where it must not be told.
        voice: how the voice was made; None where it must not be told.
        made_at: when the speaking began.
        consent: which statement was made about the voice; None where there was none to make.
        consent_sha256: of the consent's record.
        speaker: name of the voice; None unless it was asked to be told.
        text: what was to be spoken; None unless it was asked to be told.
    """

    # Ignored, not forbidden: a later version may say more.
    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] = Field(default_factory=lambda: uuid.uuid4().hex)
    version: _Word = VERSION
    checkpoint: _Hash | None = None
    voice: Literal["zero-shot", "fine-tuned"] | None = None
    made_at: datetime = Field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    consent: _Word | None = None
    consent_sha256: _Hash | None = None
    speaker: Annotated[str, StringConstraints(max_length=MAX_SPEAKER_LENGTH)] | None = None
    text: Annotated[str, StringConstraints(max_length=MAX_STATED_LENGTH)] | None = None

    def without_origin(self) -> SpeechStatement:
        """The same without what would tell a listener in a blind test which voice it is."""
        origin = ("checkpoint", "voice", "consent", "consent_sha256", "speaker")
        return self.model_copy(update=dict.fromkeys(origin))

    def for_another_take(self) -> SpeechStatement:
        """The same of a take that is made now."""
        return SpeechStatement.model_validate(self.model_dump(exclude={"id", "made_at"}))

    def as_json(self) -> str:
        """One line of ASCII, short enough for a header: without speaker and text, which are signed alone."""
        return self.model_dump_json(exclude_none=True, exclude=set(_UNTOLD_IN_TAGS))

    def as_comment(self) -> str:
        """For a comment tag: words for people, the rest for programs."""
        return f"{_WORDS}. {self.as_json()}"

    @classmethod
    def from_comment(cls, comment: str) -> SpeechStatement | None:
        """The statement in a comment tag, which proves nothing: anyone can write one; None if there is none."""
        words, brace, rest = comment.partition("{")
        if not words.startswith(_WORDS) or not brace:
            return None
        try:
            return cls.model_validate_json(brace + rest)
        except ValidationError:
            return None
