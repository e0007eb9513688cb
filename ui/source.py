"""What a session of the page clones from: recordings it was given, a sample, or a voice of the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backend.audio.quality import ReferenceReport


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A recording that was found fit: the file as it was given, and a WAV of it that is safe to play."""

    name: str
    path: Path
    preview: Path
    report: ReferenceReport


@dataclass(frozen=True, kw_only=True)
class Source:
    """Who is to speak.

    Attributes:
        kind: where the voice comes from.
        name: as people read it.
        reference: what a recording or a sample is cloned from.
        preview: the same, safe to play.
        voice_id: of a voice of the library.
        sample: name of a sample.
    """

    kind: Literal["recording", "sample", "voice"]
    name: str
    reference: Path | None = None
    preview: Path | None = None
    voice_id: str = ""
    sample: str = ""

    @classmethod
    def of_reference(cls, reference: Reference) -> Source:
        """One recording."""
        return cls(kind="recording", name=reference.name, reference=reference.path, preview=reference.preview)


def best_reference(references: Sequence[Reference]) -> Reference | None:
    """The recording to clone from unless the person chooses: fewest concerns, then length, up to half a minute."""
    if not references:
        return None
    return min(references, key=lambda one: (len(one.report.concerns), -min(one.report.seconds, 30.0)))


def delete_references(references: Sequence[Reference]) -> None:
    """Remove previews; the files as they were given are Gradio's, which removes them by age."""
    for reference in references:
        reference.preview.unlink(missing_ok=True)
