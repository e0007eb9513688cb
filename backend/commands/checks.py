"""What can be wrong with a command line, found before the seconds that it takes to load networks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from backend.errors import RecordingNotFound
from backend.transcription.catalogue import check_whisper
from training.model.checkpoint.reading import read_config
from training.model.device_names import check_device
from training.model.hub.hub import find_local
from training.model.prompt.language import check_language


def check_model(name: str) -> None:
    """Refuse what is no model: not a checkpoint folder, and no name of one to download. Raises ModelError."""
    find_local(name)


def check_language_of(model: str, language: str) -> None:
    """Refuse what is no model, and a language that it does not speak if it is on this machine. Raises EncoreError."""
    folder = find_local(model)
    if folder is not None:
        check_language(read_config(folder), language)


def check_recordings(paths: Iterable[Path]) -> None:
    """Refuse paths where nothing is. Raises RecordingNotFound."""
    for path in paths:
        if not path.expanduser().exists():
            raise RecordingNotFound(str(path), problem="does not exist")


__all__ = ["check_device", "check_model", "check_recordings", "check_whisper"]
