"""Which transcriber listens to a job's recordings, and when it should not be believed."""

from __future__ import annotations

from dataclasses import dataclass

from backend.dataset.job import BuildJob
from backend.transcription.doubts import Doubt, doubts_about
from backend.transcription.errors import WhisperUnavailable
from backend.transcription.transcriber import Transcriber
from backend.transcription.transcript import Transcript
from backend.transcription.whisper_transcriber import WhisperTranscriber
from backend.transcription.whisper_weights import WhisperWeights, find_whisper, hash_file
from training.model.voice_model import choose_device

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

_DOUBTS = {
    Doubt.NO_SPEECH: "The transcriber hears no speech here, so the text may be made up. Listen, and type what is said.",
    Doubt.RUNS_IN_CIRCLES: "The transcript repeats itself and is probably made up. Listen, and type what is said.",
    Doubt.GUESSED: "The transcriber was guessing here. Listen, and type what is said.",
}


@dataclass(frozen=True, kw_only=True)
class TranscriberSource:
    """A Whisper model that is not loaded yet; small enough to travel to workers.

    `identity` is a hash of its weights: two with the same hear the same.
    """

    weights: WhisperWeights
    identity: str

    @property
    def piece_seconds(self) -> float:
        """The longest sound it hears at once."""
        return self.weights.piece_seconds

    def load(self, device: str) -> Transcriber:
        """Load it. Raises EncoreError where the weights are damaged."""
        return WhisperTranscriber(self.weights, device=str(choose_device(device)))


@dataclass(frozen=True, kw_only=True)
class ChosenTranscriber:
    """Who listens, and what a person should know about the choice; empty where it is what was asked for."""

    source: TranscriberSource | None
    notice: str = ""


def find_transcriber(job: BuildJob) -> ChosenTranscriber:
    """Find the transcriber of a job, downloading it if need be; none is an answer too, with the reason.

    Raises:
        EncoreError: its weights are damaged.
    """
    if job.whisper == NO_TRANSCRIBER:
        return ChosenTranscriber(source=None)
    try:
        weights = find_whisper(job.whisper or _USUAL_WHISPER)
    except WhisperUnavailable as error:
        return ChosenTranscriber(source=None, notice=str(error))
    source = TranscriberSource(weights=weights, identity=hash_file(weights.path))
    return ChosenTranscriber(source=source, notice=weights.notice or "")


def language_code(language: str) -> str | None:
    """Whisper's code for one of the model's languages, or a code as it is; None lets the transcriber recognise it."""
    name = language.strip().lower()
    return None if name in ("", "auto") else _CODES.get(name, name)


def doubt_about(transcript: Transcript) -> str:
    """Why a transcript should not be believed, as a sentence; empty where it should."""
    return next((_DOUBTS[doubt] for doubt in doubts_about(transcript)), "")
