"""Consent: who agreed to have a voice cloned, when, and in which words. No voice is made without it."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from backend.voices.errors import ConsentMissing

StatementKind = Literal["own-voice", "speaker-agreed", "synthetic"]

STATEMENTS: dict[StatementKind, str] = {
    "own-voice": "This is my own voice, and I agree that it is cloned.",
    "speaker-agreed": "The person who speaks in this recording has agreed that their voice is cloned for this use.",
    "synthetic": "The recording is synthetic speech: no person's voice is cloned.",
}
"""The statements a person can agree to, in the words shown to them."""

# Clocks of two machines differ; a consent of next week is a mistake.
_CLOCK_TOLERANCE = timedelta(days=1)

_Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class SpokenProof(BaseModel):
    """What was heard when a random phrase was spoken as proof of consent; see `backend.voices.spoken_consent`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    phrase: str = Field(min_length=1, max_length=500)
    heard: str = Field(max_length=2000)
    error_rate: float = Field(ge=0, allow_inf_nan=False)
    """Letter errors per letter of the phrase."""
    similarity: float = Field(ge=-1.001, le=1.001)
    """Cosine between the speaker embeddings of phrase and reference."""
    listener: str | None = None
    """Which speech recognition heard it; None in proofs of earlier versions."""
    verifier: str | None = None
    """Which speaker verifier compared the voices; None: the model's own speaker encoder did."""


class Consent(BaseModel):
    """Stored and exported with the voice it allows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    who: _Line = Field(max_length=200)
    """Who gives the consent; for `speaker-agreed`, the person who asked the speaker."""
    statement: StatementKind
    wording: _Line = Field(max_length=2000)
    given_at: datetime
    spoken: SpokenProof | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the record: names it without telling who gave it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @field_validator("given_at")
    @classmethod
    def _in_utc(cls, moment: datetime) -> datetime:
        if moment.tzinfo is None:
            raise ValueError("a time zone is missing")
        if moment > datetime.now(UTC) + _CLOCK_TOLERANCE:
            raise ValueError("it lies in the future")
        return moment.astimezone(UTC)

    @classmethod
    def give(
        cls,
        who: str,
        statement: str = "own-voice",
        *,
        wording: str | None = None,
        spoken: SpokenProof | None = None,
    ) -> Self:
        """Record a consent given now.

        Raises:
            ConsentMissing: no name is given, or no known statement.
        """
        try:
            return cls(
                who=who,
                statement=cast(StatementKind, statement),
                wording=STATEMENTS.get(cast(StatementKind, statement), "") if wording is None else wording,
                given_at=datetime.now(UTC),
                spoken=spoken,
            )
        except ValidationError as error:
            raise ConsentMissing(_explain(error)) from error

    @classmethod
    def from_form(
        cls,
        statement: str | None,
        who: str | None,
        proof: SpokenProof | None = None,
        sample: Consent | None = None,
        *,
        how: str = "State who gives it, and one of",
    ) -> Consent:
        """Read a consent from a form, command-line options or a request, by the same rules for all three.

        Args:
            statement: one of `STATEMENTS`.
            who: name of the person who makes it.
            proof: what was heard when it was spoken.
            sample: the consent that comes with a sample voice, if one is used.
            how: how to give what is missing; the statements follow.

        Raises:
            ConsentMissing: a part of it is missing, or there is no such statement.
        """
        if sample is not None:
            return sample
        if not statement and not (who or "").strip():
            raise ConsentMissing(
                f"A voice is cloned only with the consent of the person who speaks. {how}: {', '.join(STATEMENTS)}."
            )
        return cls.give(who or "", statement or "", spoken=proof)


def require_consent(consent: Consent | None) -> Consent:
    """Refuse to clone or train without a consent.

    Raises:
        ConsentMissing: there is none.
    """
    return consent or Consent.from_form(None, None)


def _explain(error: ValidationError) -> str:
    field = str(error.errors()[0]["loc"][0])
    if field == "statement":
        return f"The consent must be one of these statements: {', '.join(STATEMENTS)}. Choose the one that is true."
    if field == "who":
        return "A consent needs the name of the person who gives it (at most 200 characters). Fill it in."
    return f"The consent's {field} is not usable: {error.errors()[0]['msg']}. Correct it."
