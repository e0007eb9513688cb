"""The recording that a session of the page clones from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A recording that was found fit: the file as it was given, and a WAV of it that is safe to play."""

    path: Path
    preview: Path


def delete_reference(reference: Reference | None) -> None:
    """Remove the preview; the file as it was given is Gradio's, which removes it by age."""
    if reference is not None:
        reference.preview.unlink(missing_ok=True)
