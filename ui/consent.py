"""What was stated on the page about a consent, and the recordings it was stated for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.voices.consent import Consent, SpokenProof, bound_to_recording, hash_of_file
from backend.voices.errors import ConsentMissing
from backend.voices.samples import get_sample
from ui.fields import STATEMENT_WORDS
from ui.source import Reference, Source
from ui.words.words import say


def read_consent(statement: str | None, who: str, proof: SpokenProof | None = None) -> Consent:
    """The consent as it is filled in, with the statement in the words that the person saw.

    Raises:
        ConsentMissing: a part of it is missing.
    """
    if not statement or not who.strip():
        missing = "consent.name_missing" if statement else "consent.statement_missing"
        raise ConsentMissing(say(missing if statement or who.strip() else "consent.missing"))
    key = {str(kind): words for kind, words in STATEMENT_WORDS.items()}.get(statement)
    return Consent.from_form(statement, who, proof, wording=say(key) if key is not None else None)


def of_another_recording() -> ConsentMissing:
    """What is raised where the statement was made for something else than what is there now."""
    return ConsentMissing(say("consent.other_recording"))


@dataclass(frozen=True, kw_only=True)
class Stated:
    """The fields of the Speak tab.

    Attributes:
        statement: what was chosen; None before.
        who: the name for it.
        proof: what was read aloud.
        source: what is cloned now.
        signed: what `sign` returned when the statement was chosen; empty where no one chose it on this page.
    """

    statement: str | None
    who: str
    proof: SpokenProof | None = None
    source: Source | None = None
    signed: str = ""

    def read(self) -> Consent:
        """The consent for the recording that is cloned; a sample brings its own.

        Raises:
            ConsentMissing: it is incomplete, or was stated for another recording.
            ConsentInvalid: it was read aloud for another one.
        """
        source = self.source
        if source is not None and source.kind == "sample":
            given = get_sample(source.sample).consent()
        else:
            if self.signed and not is_signed(self.signed, source):
                raise of_another_recording()
            given = read_consent(self.statement, self.who, self.proof)
        if source is None or source.reference is None:
            return given
        return bound_to_recording(given, source.reference)

    @property
    def by_content(self) -> dict[str, Consent]:
        """The consent by the hash of each recording it was stated for; nothing while it is incomplete."""
        source = self.source
        if source is not None and source.kind == "voice":
            return _kept_consent(source)
        if source is None or source.kind != "recording" or not self.statement or not self.who.strip():
            return {}
        try:
            consent = self.read()
        except ConsentMissing:
            return {}
        stated_for = self.signed.split() or _contents(source)
        return {content: consent.for_one_of_several(content) for content in stated_for}


def sign(source: Source | None, references: Sequence[Reference] = (), added: Sequence[Path] = ()) -> str:
    """What stands for the recordings a statement is made for, to remember with it: the source, all listed ones, and
    those that were added and are perhaps still being examined.
    """
    listed = [reference.path for reference in references] if source is not None and source.kind == "recording" else []
    contents = [hash_of_file(path) for path in (*listed, *added) if path.is_file()]
    return " ".join(dict.fromkeys((*(_contents(source) if source is not None else ()), *contents)))


def is_signed(signed: str, source: Source | None) -> bool:
    """Whether what `sign` returned stands for everything that is cloned now."""
    return source is not None and set(_contents(source)) <= set(signed.split())


def _kept_consent(source: Source) -> dict[str, Consent]:
    """What a voice of the library was made with, for its recording as it is kept there."""
    if source.stored_recording is None or source.consent is None:
        return {}
    content = hash_of_file(source.stored_recording)
    return {content: source.consent.for_one_of_several(content)}


def _contents(source: Source) -> tuple[str, ...]:
    if source.kind != "recording" or source.reference is None:
        return (f"{source.kind}:{source.voice_id or source.sample}",)
    return tuple(hash_of_file(path) for path in source.made_of or (source.reference,))
