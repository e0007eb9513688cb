"""What a session of the page clones from: recordings it was given, a sample, or a voice of the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gradio as gr

from backend.audio.quality import Concern, ReferenceReport
from backend.voices.consent import Consent
from backend.voices.voice import Voice


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A recording that can be cloned from: the file as it was given, and a WAV of it that is safe to play."""

    name: str
    path: Path
    preview: Path
    report: ReferenceReport

    @property
    def is_made_by_encore(self) -> bool:
        """Whether it says so itself."""
        return Concern.MADE_BY_ENCORE in self.report.concerns


@dataclass(frozen=True, kw_only=True)
class Source:
    """Whose voice is to speak.

    Attributes:
        kind: where the voice comes from.
        name: as people read it.
        reference: what a recording or a sample is cloned from.
        preview: the same, safe to play.
        voice_id: of a voice of the library.
        sample: name of a sample.
        made_by_encore: whether the recording says that Encore made it.
        made_of: the recordings as they were given, where the reference is several of them.
        stored: the recording of a voice of the library.
        consent: what that voice was made with.
    """

    kind: Literal["recording", "sample", "voice"]
    name: str
    reference: Path | None = None
    preview: Path | None = None
    voice_id: str = ""
    sample: str = ""
    made_by_encore: bool = False
    made_of: tuple[Path, ...] = ()
    stored: Path | None = None
    consent: Consent | None = None

    @classmethod
    def of_reference(cls, reference: Reference) -> Source:
        """One recording."""
        return cls(
            kind="recording",
            name=reference.name,
            reference=reference.path,
            preview=reference.preview,
            made_by_encore=reference.is_made_by_encore,
        )

    @classmethod
    def of_voice(cls, voice: Voice, preview: Path | None) -> Source:
        """A voice of the library."""
        return cls(
            kind="voice",
            name=voice.name,
            voice_id=voice.id,
            preview=preview,
            stored=voice.reference,
            consent=voice.consent,
        )

    @property
    def recording_key(self) -> str:
        """What the page tells a recording that is not in the library by; empty for samples and voices."""
        return str(self.reference) if self.kind == "recording" else ""

    @property
    def stored_recording(self) -> Path | None:
        """The recording of a voice of the library, as long as the voice is there."""
        return self.stored if self.stored is not None and self.stored.is_file() else None


@dataclass(frozen=True, kw_only=True)
class VoiceFields:
    """What is filled in on the Speak tab, for the tabs that go on from there.

    Attributes:
        references: a list of `Reference`.
        source: a `Source`, or None.
        proof: a `SpokenProof` of the consent, or None.
        signed: what the statement was chosen for, see `ui.consent.sign`.
    """

    references: gr.State
    source: gr.State
    transcript: gr.Textbox
    statement: gr.Radio
    who: gr.Textbox
    proof: gr.State
    signed: gr.State
    name: gr.Textbox


def best_reference(references: Sequence[Reference]) -> Reference | None:
    """The recording to clone from unless the user chooses: fewest concerns, then length, up to half a minute."""
    if not references:
        return None
    return min(references, key=lambda one: (len(one.report.concerns), -min(one.report.seconds, 30.0)))


def delete_references(references: Sequence[Reference]) -> None:
    """Remove previews; the files as they were given are Gradio's, which removes them by age."""
    for reference in references:
        reference.preview.unlink(missing_ok=True)
