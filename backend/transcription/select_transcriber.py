"""Who transcribes: a Whisper that is asked for by name or is on this machine, or pocketsphinx."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backend.errors import EncoreError
from backend.transcription.catalogue import AUTOMATIC, DEFAULT_WHISPER, NO_TRANSCRIBER, PUBLISHED_WHISPERS
from backend.transcription.errors import WhisperUnavailable
from backend.transcription.pocketsphinx_transcriber import (
    POCKETSPHINX,
    POCKETSPHINX_PIECE_SECONDS,
    PocketsphinxTranscriber,
    is_installed,
    version,
)
from backend.transcription.reads_as_english import reads_as_english
from backend.transcription.transcriber import Transcriber, WhisperWeights
from training.model.hub.hub import DownloadProgress

_logger = logging.getLogger(__name__)

_POCKETSPHINX_NOTICE = (
    "pocketsphinx transcribes; it knows English only and gets about one letter in ten wrong. "
    "Check the texts, or download a Whisper model behind the model button."
)
_ENGLISH_ONLY = "What listens without a download, pocketsphinx, knows English only. "

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

        chosen = choose_device(device)
        # Its word times are found in float64 and its attention heads are named by a sparse tensor, which Apple's GPUs
        # lack and Intel's may.
        return WhisperTranscriber(self, device=str(chosen) if chosen.type == "cuda" else "cpu")


@dataclass(frozen=True, kw_only=True)
class PocketsphinxSource:
    """The transcriber of English that comes with the installation; see `TranscriberSource`.

    Attributes:
        identity: names its version: transcripts are cached under it, and made anew after an update.
    """

    name: str = POCKETSPHINX
    identity: str = field(default_factory=lambda: f"{POCKETSPHINX} {version()}")
    piece_seconds: float = POCKETSPHINX_PIECE_SECONDS

    def load(self, device: str) -> Transcriber:
        """It loads itself when it first listens, on the CPU."""
        return PocketsphinxTranscriber()


@dataclass(frozen=True, kw_only=True)
class SelectedTranscriber:
    """The transcriber to use, if any, and what the user should know about the choice (empty if nothing)."""

    source: TranscriberSource | PocketsphinxSource | None
    notice: str = ""


def select_transcriber(
    name: str | None,
    language: str = "auto",
    *,
    texts: Sequence[str] = (),
    progress: Callable[[DownloadProgress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> SelectedTranscriber:
    """Find the transcriber of this name, and download it if need be.

    Without a name it is the preferred Whisper on this machine; where there is none, pocketsphinx for English, and a
    download for other languages. Without a network pocketsphinx stands in for a published Whisper, and the notice
    says so. If nothing is available, the source is None and the notice says why. Where the language is not said, what
    the recordings say by `texts` that came with them tells whether it is English.

    Raises:
        DownloadCancelled: `cancel` returned true.
        EncoreError: its weights are damaged.
    """
    if name == NO_TRANSCRIBER:
        return SelectedTranscriber(source=None)
    code = language_code(language)
    is_english = code == "en" or (code is None and (not is_installed() or reads_as_english(texts)))
    if name in AUTOMATIC:
        stored = _stored_whispers()
        if not stored and is_english and is_installed():
            return SelectedTranscriber(source=PocketsphinxSource(), notice=_POCKETSPHINX_NOTICE)
        name = stored[0] if stored else DEFAULT_WHISPER
    # Here: see `TranscriberSource.load`.
    from backend.transcription.whisper_weights import find_whisper  # noqa: PLC0415

    try:
        weights = find_whisper(name, progress=progress, cancel=cancel)
    except WhisperUnavailable as error:
        if is_english and is_installed() and any(model.name == name for model in PUBLISHED_WHISPERS):
            return SelectedTranscriber(source=PocketsphinxSource(), notice=f"{error} {_POCKETSPHINX_NOTICE}")
        return SelectedTranscriber(source=None, notice=f"{'' if is_english else _ENGLISH_ONLY}{error}")
    return SelectedTranscriber(source=TranscriberSource(**vars(weights)))


def load_stored_transcribers(device: str = "cpu") -> tuple[Transcriber, ...]:
    """Load the best Whisper that needs no download, if any, and pocketsphinx; evaluation never waits for a download."""
    whisper = _load_stored_whisper(device)
    found = () if whisper is None else (whisper,)
    return (*found, PocketsphinxTranscriber()) if is_installed() else found


def _load_stored_whisper(device: str) -> Transcriber | None:
    for name in _stored_whispers():
        try:
            selected = select_transcriber(name)
            if isinstance(selected.source, TranscriberSource):
                return selected.source.load(device)
        except EncoreError as error:
            _logger.warning("Whisper %s cannot be loaded: %s", name, error)
        else:
            _logger.warning("Whisper %s cannot be loaded: %s", name, selected.notice)
    return None


def _stored_whispers() -> list[str]:
    """Published models on this machine, the preferred one first."""
    here = sorted((model for model in PUBLISHED_WHISPERS if model.path.is_file()), key=lambda model: model.preference)
    return [model.name for model in here]


def language_code(language: str) -> str | None:
    """Whisper's code for one of the model's languages; a code stays as it is. None: the language is detected."""
    name = language.strip().lower()
    return None if name in ("", "auto") else _CODES.get(name, name)
