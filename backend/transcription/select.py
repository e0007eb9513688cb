"""Which Whisper transcribes: one that is asked for by name, or the best of those on this machine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend.errors import EncoreError
from backend.transcription.catalogue import DEFAULT_WHISPER, PUBLISHED_WHISPERS
from backend.transcription.errors import WhisperUnavailable
from backend.transcription.transcriber import Transcriber, WhisperWeights
from training.model.hub.hub import EMBEDDED_FOLDER, EMBEDDED_MODEL, DownloadProgress

_logger = logging.getLogger(__name__)

NO_TRANSCRIBER = "none"
"""In place of a model's name: nothing is transcribed, and only recordings that come with a text can be used."""

_CODES = {
    "chinese": "zh",
    "english": "en",
    "french": "fr",
    "german": "de",
    "italian": "it",
    "japanese": "ja",
    "korean": "ko",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
}


@dataclass(frozen=True, kw_only=True)
class TranscriberSource(WhisperWeights):
    """A Whisper model that is not loaded yet. Pickled to every worker, most of which never load it."""

    def load(self, device: str) -> Transcriber:
        """Load it. Raises EncoreError if the weights are damaged."""
        # Here: Whisper and PyTorch take seconds to load, and most workers only look results up.
        from backend.transcription.whisper_transcriber import WhisperTranscriber  # noqa: PLC0415 - see above
        from training.model.device import choose_device  # noqa: PLC0415

        return WhisperTranscriber(self, device=str(choose_device(device)))


@dataclass(frozen=True, kw_only=True)
class SelectedTranscriber:
    """The transcriber to use, if any, and what the user should know about the choice (empty if nothing)."""

    source: TranscriberSource | None
    notice: str = ""


def select_transcriber(
    name: str | None,
    *,
    progress: Callable[[DownloadProgress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> SelectedTranscriber:
    """Find the transcriber of this name, or the default one, and download it if need be.

    If it is unavailable, the source is None and the notice says why.

    Raises:
        DownloadCancelled: `cancel` returned true.
        EncoreError: its weights are damaged.
    """
    if name == NO_TRANSCRIBER:
        return SelectedTranscriber(source=None)
    # Here: see `TranscriberSource.load`.
    from backend.transcription.whisper_weights import find_whisper  # noqa: PLC0415

    try:
        weights = find_whisper(name or DEFAULT_WHISPER, progress=progress, cancel=cancel)
    except WhisperUnavailable as error:
        return SelectedTranscriber(source=None, notice=str(error))
    return SelectedTranscriber(source=TranscriberSource(**vars(weights)), notice=weights.notice or "")


def load_stored_transcriber(base_model: Path | None, device: str = "cpu") -> Transcriber | None:
    """Load the best transcriber that needs no download, or None; evaluation never waits for a download.

    The embedded transcriber knows only the voices of the embedded model, so it is used for those alone: with
    `base_model` None, for recordings of people, never.
    """
    here = sorted((model for model in PUBLISHED_WHISPERS if model.path.is_file()), key=lambda model: model.preference)
    names = [model.name for model in here]
    if base_model is not None and base_model.resolve() == EMBEDDED_FOLDER.resolve():
        names.insert(0, EMBEDDED_MODEL)
    for name in names:
        try:
            selected = select_transcriber(name)
            if selected.source is not None:
                return selected.source.load(device)
        except EncoreError as error:
            _logger.warning("Whisper %s cannot be loaded: %s", name, error)
        else:
            _logger.warning("Whisper %s cannot be loaded: %s", name, selected.notice)
    return None


def language_code(language: str) -> str | None:
    """Whisper's code for one of the model's languages; a code stays as it is. None: the language is detected."""
    name = language.strip().lower()
    return None if name in ("", "auto") else _CODES.get(name, name)
