"""Consent: who agreed to have a voice cloned, when, and in which words. No voice is made without it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from backend.errors import RecordingNotFound
from backend.voices.errors import ConsentInvalid, ConsentMissing

StatementKind = Literal["own-voice", "speaker-agreed", "synthetic"]

STATEMENTS: dict[StatementKind, str] = {
    "own-voice": "This is my own voice, and I agree that it is cloned.",
    "speaker-agreed": "The person who speaks has agreed that their voice is cloned for this use.",
    "synthetic": "This is synthetic speech: no person's voice is cloned.",
}
"""The statements a person can agree to, in the words shown to them."""

# Clocks of two machines differ; a consent of next week is a mistake.
_CLOCK_TOLERANCE = timedelta(days=1)

HASH_DIGITS = 32
"""Of the hash of a recording: 128 bits are beyond chance."""

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
    recording: str | None = None
    """Fingerprint of the recording whose voice it was compared with; None in proofs of earlier versions."""


class Consent(BaseModel):
    """Stored and exported with the voice it allows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    who: _Line = Field(max_length=200)
    """Who gives the consent; for `speaker-agreed`, the person who asked the speaker."""
    statement: StatementKind
    wording: _Line = Field(max_length=2000)
    given_at: datetime
    spoken: SpokenProof | None = None
    given_for: str | None = None
    """Fingerprint of the recordings it was given for, see `fingerprint`; None in consents of earlier versions."""
    also: tuple[Consent, ...] = ()
    """The consents for the other recordings, where several were given for what a voice is made of."""

    @property
    def digest(self) -> str:
        """SHA-256 of the record: names it without telling who gave it."""
        # A consent of an earlier version keeps its name.
        without: dict[str, bool | set[str]] = {name: True for name in ("given_for", "also") if not getattr(self, name)}
        if self.spoken is not None and self.spoken.recording is None:
            without["spoken"] = {"recording"}
        return hashlib.sha256(self.model_dump_json(exclude=without).encode()).hexdigest()

    @property
    def all(self) -> tuple[Consent, ...]:
        """This one by itself, and those for the other recordings."""
        return (self.model_copy(update={"also": ()}), *self.also)

    def says_the_same(self, other: Consent) -> bool:
        """Whether the same person agreed to the same statement."""
        return (self.who, self.statement) == (other.who, other.statement)

    def bound_to(self, recordings: str) -> Self:
        """The consent as one that was given for the recordings with this fingerprint.

        Raises:
            ConsentInvalid: it was given, or spoken, for other ones.
        """
        if self.given_for not in (None, recordings):
            raise ConsentInvalid("This consent was given for other recordings. State it for these.")
        if self.spoken is not None and self.spoken.recording not in (None, recordings):
            raise ConsentInvalid("The sentence was spoken for another recording. Read one aloud for this one.")
        return self.model_copy(update={"given_for": recordings})

    def for_one_of_several(self, recording: str) -> Self:
        """The same for one recording of those that it was given for; what was read aloud proves only its own."""
        is_other = self.spoken is not None and self.spoken.recording not in (None, recording)
        return self.model_copy(update={"given_for": recording, **({"spoken": None} if is_other else {})})

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
        *,
        wording: str | None = None,
        how: str = "State who gives it, and one of",
    ) -> Consent:
        """Read a consent from a form, command-line options or a request, by the same rules for all three.

        Args:
            statement: one of `STATEMENTS`.
            who: name of the person who makes it.
            proof: what was heard when it was spoken.
            wording: the statement as the person saw it; None for the one of `STATEMENTS`.
            how: how to give what is missing; the statements follow.

        Raises:
            ConsentMissing: a part of it is missing, or there is no such statement.
        """
        if not statement and not (who or "").strip():
            raise ConsentMissing(
                f"A voice is cloned only with the consent of the person who speaks. {how}: {', '.join(STATEMENTS)}."
            )
        return cls.give(who or "", statement or "", wording=wording, spoken=proof)


def fingerprint(recordings: Iterable[str]) -> str:
    """What stands for recordings, given by the hashes of their contents, in any order."""
    hashes = sorted(set(recordings))
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()[:HASH_DIGITS]


def fingerprint_of_files(paths: Iterable[Path]) -> str:
    """The same for files. Raises OSError."""
    return fingerprint(map(hash_of_file, paths))


def hash_of_file(path: Path) -> str:
    """The hash of a recording's content, by which datasets know it, too. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:HASH_DIGITS]


def bound_to_recording(consent: Consent, recording: Path | bytes) -> Consent:
    """The consent as one for the one recording that came with it. Raises ConsentInvalid and RecordingNotFound."""
    if isinstance(recording, bytes):
        return consent.bound_to(hashlib.sha256(recording).hexdigest()[:HASH_DIGITS])
    try:
        return consent.bound_to(hash_of_file(recording))
    except OSError as error:
        raise RecordingNotFound(recording.name, problem=f"cannot be opened ({error.strerror})") from error


def combine_consents(consents: Iterable[tuple[str, Consent]]) -> Consent:
    """One consent for everything that a voice is made of, from the hash and the consent of each recording.

    A person's comes first: a voice that learnt from people is nowhere said to be synthetic.
    """
    recordings: list[tuple[Consent, list[str]]] = []
    for digest, consent in consents:
        same = next((hashes for one, hashes in recordings if one.says_the_same(consent)), None)
        if same is None:
            recordings.append((consent, [digest]))
        else:
            same.append(digest)
    assert recordings, "there is a recording"
    recordings.sort(key=lambda one: (one[0].statement == "synthetic", one[0].given_at))
    first, *others = (
        one.model_copy(update={"given_for": fingerprint(hashes), "also": ()}) for one, hashes in recordings
    )
    return first.model_copy(update={"also": tuple(others)})


def consents_of_all(consents: Iterable[Consent]) -> Consent:
    """One consent for a run, from that of each speaker."""
    listed = list(consents)
    if len(listed) == 1:
        return listed[0]
    return combine_consents((one.given_for or one.digest, one) for consent in listed for one in consent.all)


def consent_of_several_missing(names: Sequence[str]) -> ConsentMissing:
    """What is raised where several people are cloned together, and some of them have not agreed."""
    *others, last = names
    if not others:
        return ConsentMissing(
            f"{last} has no consent yet, and every speaker of a run needs their own. Give --consent and --consent-by "
            f"for {last}."
        )
    return ConsentMissing(
        f"{', '.join(others)} and {last} have no consent yet, and every speaker of a run needs their own. Give "
        "--consent and --consent-by when you build their datasets."
    )


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
