"""Which transcriber listens to a job's recordings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend.dataset.clips.job import BuildJob
from backend.transcription.errors import WhisperUnavailable
from backend.transcription.transcriber import Transcriber
from training.model.hub.hub import DownloadProgress

NO_TRANSCRIBER = "none"
"""As the name of a Whisper model: nobody listens, and only clips that came with a text can be used."""

_USUAL_WHISPER = "base"

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
class TranscriberSource:
    """A Whisper model that is not loaded yet; travels to workers, also to those that never load it.

    Attributes:
        identity: hash of its weights; two with the same hear the same.
        piece_seconds: the longest sound it hears at once.
        silence_seconds: what it hears after it; None where it is Whisper's own.
    """

    path: str
    name: str
    published_name: str | None
    piece_seconds: float
    silence_seconds: float | None
    identity: str

    def load(self, device: str) -> Transcriber:
        """Load it. Raises EncoreError where the weights are damaged."""
        # Here: Whisper and PyTorch take seconds to load, and most workers only look results up.
        from backend.transcription.whisper_transcriber import WhisperTranscriber  # noqa: PLC0415 - see above
        from backend.transcription.whisper_weights import WhisperWeights  # noqa: PLC0415
        from training.model.device import choose_device  # noqa: PLC0415

        weights = WhisperWeights(
            path=Path(self.path),
            name=self.name,
            published_name=self.published_name,
            piece_seconds=self.piece_seconds,
            silence_seconds=self.silence_seconds,
        )
        return WhisperTranscriber(weights, device=str(choose_device(device)))


@dataclass(frozen=True, kw_only=True)
class ChosenTranscriber:
    """Who listens, and what a person should know about the choice; empty where it is what was asked for."""

    source: TranscriberSource | None
    notice: str = ""


def find_transcriber(
    job: BuildJob,
    *,
    progress: Callable[[DownloadProgress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> ChosenTranscriber:
    """Find the transcriber of a job, downloading it if need be; none is an answer too, with the reason.

    Raises:
        DownloadCancelled: `cancel` said so.
        EncoreError: its weights are damaged.
    """
    if job.whisper == NO_TRANSCRIBER:
        return ChosenTranscriber(source=None)
    # Here: see `TranscriberSource.load`.
    from backend.transcription.whisper_weights import find_whisper, hash_file  # noqa: PLC0415

    try:
        weights = find_whisper(job.whisper or _USUAL_WHISPER, progress=progress, cancel=cancel)
    except WhisperUnavailable as error:
        return ChosenTranscriber(source=None, notice=str(error))
    source = TranscriberSource(
        path=str(weights.path.absolute()),
        name=weights.name,
        published_name=weights.published_name,
        piece_seconds=weights.piece_seconds,
        silence_seconds=weights.silence_seconds,
        identity=hash_file(weights.path),
    )
    return ChosenTranscriber(source=source, notice=weights.notice or "")


def language_code(language: str) -> str | None:
    """Whisper's code for one of the model's languages, or a code as it is; None lets the transcriber recognise it."""
    name = language.strip().lower()
    return None if name in ("", "auto") else _CODES.get(name, name)
