"""Which speech recognition judges can use on this machine. Judging never waits for a download."""

from __future__ import annotations

import logging
from pathlib import Path

from backend.errors import EncoreError
from backend.transcription.transcriber import Transcriber
from training.model.hub.hub import EMBEDDED_FOLDER, EMBEDDED_MODEL

_logger = logging.getLogger(__name__)

PREFERRED_WHISPERS = ("base", "small", "turbo", "medium", "large-v3", "tiny")
"""Small ones first: they listen beside training, and all checkpoints are heard by the same."""


def find_transcriber(base_model: Path | None) -> Transcriber | None:
    """A transcriber whose weights are here; None where there is none, and then no words are checked.

    The embedded one knows the voices that the embedded model speaks with, and is asked about no others: not about those
    of people, for which no `base_model` is given.
    """
    import whisper  # noqa: PLC0415 - takes seconds, and only judges need it

    from backend.transcription import whisper_weights  # noqa: PLC0415
    from backend.transcription.whisper_transcriber import WhisperTranscriber  # noqa: PLC0415

    folder = whisper_weights.default_cache_folder()
    names = [name for name in PREFERRED_WHISPERS if (folder / whisper._MODELS[name].rpartition("/")[2]).is_file()]
    if base_model is not None and base_model.resolve() == EMBEDDED_FOLDER.resolve():
        names.insert(0, EMBEDDED_MODEL)
    for name in names:
        try:
            return WhisperTranscriber(whisper_weights.find_whisper(name))
        except EncoreError as error:
            _logger.warning("whisper %s cannot listen: %s", name, error)
    return None
