"""A take listened to once it is spoken, beside whatever is spoken next: are its words there, and is it the voice?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backend.audio.resample import resample
from backend.evaluation.scores import cosine
from backend.evaluation.take_scores import read_own_wav
from backend.takes.parts import HeardInPart, TakePart
from backend.takes.take import Take
from backend.transcription.listening import Heard, Report, hear_clips
from backend.transcription.select_transcriber import language_code
from backend.transcription.text_difference import compare_letters
from backend.transcription.transcriber import TRANSCRIBER_HZ
from backend.voices.reference import read_reference
from training.model.speaker_verifier import load_verifier

NO_LIKENESS = 0.62
"""Below it a take resembles its reference no more than a stranger does. It is the similarity at which the verifier
confuses as many pairs of one person's short recordings as of two people's (docs/listening.md, "Measured"). Takes of the
embedded model in the sample voices have 0.70 to 0.96, a person whom it does not know 0.56."""

_MAX_SECONDS = 180.0
"""Of a take, its most doubtful parts first: listening takes as long as the sound."""

_LEAST_CONFIDENCE = 0.2
"""Of a listener that knows the voice too little for its words, and still hears how many there are."""

_LEAST_VOICE_SECONDS = 2.0
_SPEEDS = (0.8, 1.25)
"""At others a listener hears worse than people do."""


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """How like its reference a take is.

    Attributes:
        similarity: by the speaker verifier; 1 is the same direction.
    """

    similarity: float

    @property
    def is_there(self) -> bool:
        """Whether the take resembles its reference more than a stranger does."""
        return self.similarity >= NO_LIKENESS


def hear_parts(take: Take, report: Report) -> tuple[TakePart, ...]:
    """The parts of a take with what was heard in them, as far as somebody here can listen.

    Raises:
        TranscriptionError: the listener failed.
    """
    if take.audio_format != "wav" or not _SPEEDS[0] <= take.speed <= _SPEEDS[1] or not take.path.is_file():
        return take.parts
    samples, rate = read_own_wav(take.path)
    chosen: list[int] = []
    seconds = 0.0
    for index in sorted(range(len(take.parts)), key=lambda index: _share(take.parts[index])):
        seconds += take.parts[index].seconds
        if seconds <= _MAX_SECONDS or not chosen:
            chosen.append(index)
    clips = []
    for index in chosen:
        part = take.parts[index]
        begin, end = (round(second / take.speed * rate) for second in (part.start_seconds, _end(part)))
        clips.append(resample(samples[begin:end], rate, TRANSCRIBER_HZ))
    language = language_code(take.language)
    heard = dict(zip(chosen, hear_clips(clips, language, report), strict=True))
    return tuple(_with(part, heard.get(index), language or "en") for index, part in enumerate(take.parts))


def likeness_of(take: Take, reference: Path) -> Likeness | None:
    """How like its reference a take is; None where it is too short to tell, or no verifier is there.

    Raises:
        RecordingError: the reference cannot be read.
    """
    verifier = load_verifier()
    if verifier is None or take.audio_format != "wav" or take.seconds < _LEAST_VOICE_SECONDS:
        return None
    recording = read_reference(reference)
    wanted = verifier.embed(recording.samples, sample_rate=recording.sample_rate)
    samples, rate = read_own_wav(take.path)
    return Likeness(similarity=cosine(verifier.embed(samples, sample_rate=rate), wanted))


def _with(part: TakePart, heard: Heard | None, language: str) -> TakePart:
    if heard is None or heard.is_guess or heard.confidence < _LEAST_CONFIDENCE:
        return part
    found = compare_letters(part.text, heard.text, language)
    if not found.num_expected:
        return part
    lost = 1 - found.num_heard / found.num_expected
    text = heard.text if heard.is_trusted else ""
    return part.model_copy(update={"heard": HeardInPart(text=text, listener=heard.listener, lost_share=round(lost, 3))})


def _share(part: TakePart) -> float:
    return part.seconds / part.expected_seconds


def _end(part: TakePart) -> float:
    return part.start_seconds + part.seconds
