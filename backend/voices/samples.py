"""Sample voices that come with the program, to try it with before recording anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from backend.audio.writing import write_wav
from backend.voices.consent import Consent
from backend.voices.errors import VoiceError
from backend.voices.reference import read_reference
from training.model.project import PROJECT_FOLDER

SAMPLES_FOLDER = PROJECT_FOLDER / "assets" / "voices"
INDEX_FILE = "voices.json"

REFERENCE_SECONDS = 8.0
"""How much of a sample a voice is cloned from, in whole sentences. More is slower and no closer."""

REFERENCES_FOLDER = "samples"
"""In the home folder: those parts as files."""

_PAUSE_SECONDS = 0.2
_MARGIN_SECONDS = 0.1

FileName = Annotated[str, StringConstraints(pattern=r"^[\w-]+\.\w+$")]


class SampleSentence(BaseModel):
    """One sentence of a sample, and where it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    start_seconds: float
    end_seconds: float


class SampleVoice(BaseModel):
    """A recording that comes with the program."""

    # The index also says how the recordings were made, which is not needed here.
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    about: str
    recording: FileName
    transcript: FileName
    seconds: float
    licence: str
    sentences: tuple[SampleSentence, ...]

    @property
    def path(self) -> Path:
        """The whole recording."""
        return SAMPLES_FOLDER / self.recording

    @property
    def reference_sentences(self) -> tuple[SampleSentence, ...]:
        """The first ones, which a voice is cloned from."""
        kept = [sentence for sentence in self.sentences if sentence.end_seconds <= REFERENCE_SECONDS]
        return tuple(kept) or self.sentences[:1]

    @property
    def reference_text(self) -> str:
        """What these say."""
        return " ".join(sentence.text for sentence in self.reference_sentences)

    def consent(self) -> Consent:
        """The consent that comes with a sample: it is synthetic speech."""
        return Consent.give("The makers of Encore", "synthetic", wording=self.licence)

    def reference_in(self, home: Path) -> Path:
        """The part a voice is cloned from as a WAV, written the first time.

        Raises:
            EncoreError: the recording is missing or cannot be read, or the disk is full.
        """
        path = home / REFERENCES_FOLDER / f"{self.name}.wav"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            recording = read_reference(self.path)
            end = round((self.reference_sentences[-1].end_seconds + _PAUSE_SECONDS) * recording.sample_rate)
            write_wav(path, recording.samples[:end], recording.sample_rate)
        return path

    def write_sentences(self, folder: Path) -> list[Path]:
        """Write each sentence as a WAV file with its text next to it, so that a dataset needs no transcriber.

        Raises:
            EncoreError: the recording is missing or cannot be read, or the disk is full.
        """
        folder.mkdir(parents=True, exist_ok=True)
        recording = read_reference(self.path)
        paths = []
        for number, sentence in enumerate(self.sentences):
            start = round(max(0.0, sentence.start_seconds - _MARGIN_SECONDS) * recording.sample_rate)
            end = round((sentence.end_seconds + _MARGIN_SECONDS) * recording.sample_rate)
            paths.append(folder / f"{self.name}-{number:02}.wav")
            write_wav(paths[-1], recording.samples[start:end], recording.sample_rate)
            paths[-1].with_suffix(".txt").write_text(sentence.text + "\n", encoding="utf-8")
        return paths


class _Index(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    voices: tuple[SampleVoice, ...]


def list_samples() -> tuple[SampleVoice, ...]:
    """All samples; empty if this copy of the program comes without them."""
    try:
        index = (SAMPLES_FOLDER / INDEX_FILE).read_bytes()
    except OSError:
        return ()
    return _Index.model_validate_json(index).voices


def get_sample(name: str) -> SampleVoice:
    """The sample of that name. Raises VoiceError."""
    for sample in list_samples():
        if sample.name == name:
            return sample
    raise VoiceError(f"There is no sample voice {name[:100]!r} in this copy of Encore. Record a voice instead.")
