"""What was stated on the page about a consent, and the recordings it was stated for."""

from __future__ import annotations

from dataclasses import dataclass

from backend.voices.consent import Consent, SpokenProof, bound_to_recording, hash_of_file
from backend.voices.errors import ConsentMissing
from backend.voices.samples import get_sample
from ui.source import Source

OTHER_RECORDING = "The consent was stated for another recording. State it for this one."


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
            if self.signed and self.signed != sign(source):
                raise ConsentMissing(OTHER_RECORDING)
            given = Consent.from_form(self.statement, self.who, self.proof)
        if source is None or source.reference is None:
            return given
        return bound_to_recording(given, source.reference)

    @property
    def by_content(self) -> dict[str, Consent]:
        """The consent by the hash of each recording it is for; nothing while it is incomplete."""
        source = self.source
        if source is None or source.kind != "recording" or not self.statement or not self.who.strip():
            return {}
        try:
            consent = self.read()
        except ConsentMissing:
            return {}
        return {content: consent.for_one_of_several(content) for content in _contents(source)}


def sign(source: Source | None) -> str:
    """What stands for the recordings of a source, to remember with a statement."""
    return " ".join(_contents(source)) if source is not None else ""


def _contents(source: Source) -> tuple[str, ...]:
    if source.kind != "recording" or source.reference is None:
        return (f"{source.kind}:{source.voice_id or source.sample}",)
    return tuple(hash_of_file(path) for path in source.made_of or (source.reference,))
