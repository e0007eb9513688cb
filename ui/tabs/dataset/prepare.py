"""From what a session was given to a build: which recordings, which texts, under which name."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.audio.writing import write_wav
from backend.dataset.clips.job import BuildJob, check_name
from backend.dataset.sources.sidecars import SIDECAR_SUFFIXES
from backend.dataset.storage.workspace import uploads_folder
from backend.errors import EncoreError, SettingsError
from backend.transcription.catalogue import DEFAULT_WHISPER, PUBLISHED_WHISPERS
from backend.voices.cloning import read_reference
from backend.voices.samples import SampleVoice, get_sample
from ui.context import PageContext
from ui.html.base import size_in_words
from ui.source import Reference, Source

MARGIN_SECONDS = 0.1
MAX_ACTORS = 256

WHISPERS = (
    (f"Automatic ({DEFAULT_WHISPER}, or the embedded one)", ""),
    *((f"{one.name}: {one.purpose} ({size_in_words(one.num_bytes)})", one.name) for one in PUBLISHED_WHISPERS),
    ("The embedded one", "mini"),
    ("None: every recording has a text file", "none"),
)


class NothingGiven(EncoreError):
    """There is no recording to prepare."""


class DatasetInUse(EncoreError):
    """A fine-tune is reading it."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """Recordings and the texts that came with them."""

    recordings: tuple[Path, ...]
    transcripts: tuple[Path, ...] = ()
    transcript: str = ""
    """What the only recording says."""
    sample: str = ""
    """Name of a sample voice instead of recordings; it is known where each of its sentences is."""

    @property
    def is_given(self) -> bool:
        """Whether there is anything to make a dataset of."""
        return bool(self.recordings or self.sample)

    @classmethod
    def gather(
        cls, references: Sequence[Reference], source: Source | None, transcript: str, files: Sequence[str]
    ) -> Material:
        """What the voice tab has, or the sample chosen there, and what was added here."""
        here = [Path(path) for path in files]
        texts = [path for path in here if path.suffix.lower() in SIDECAR_SUFFIXES]
        recordings = [reference.path for reference in references]
        is_sample = not references and source is not None and source.kind == "sample"
        is_one = len(recordings) == 1 and len(references) == 1
        return cls(
            recordings=(*recordings, *(path for path in here if path not in texts)),
            transcripts=tuple(texts),
            transcript=transcript.strip() if is_one else "",
            sample=source.sample if source is not None and is_sample else "",
        )


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What a person filled in."""

    name: str
    language: str
    whisper: str
    num_actors: str
    """Empty leaves it to the machine."""


def plan_build(context: PageContext, material: Material, wanted: Preparation) -> BuildJob:
    """Describe the build; its recordings are put where they outlive the page.

    Raises:
        EncoreError: there is nothing to prepare, or the name cannot be used.
    """
    if not material.is_given:
        raise NothingGiven("There is no recording yet. Add some here or on the Voice tab, or choose a sample there.")
    name = check_name(wanted.name.strip())
    recordings, texts = _keep(uploads_folder(context.settings.home_folder, name), material)
    loaded = context.studio.loaded
    return BuildJob.parse(
        name,
        recordings,
        model=loaded.name if loaded is not None else context.settings.model,
        whisper=wanted.whisper.strip() or None,
        language=wanted.language,
        transcripts=texts,
        num_actors=parse_actors(wanted.num_actors),
        device=context.settings.device,
    )


def parse_actors(written: str) -> int | None:
    """How many copies of the model are to work; None where nothing is written. Raises EncoreError."""
    digits = written.strip()
    if not digits:
        return None
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > MAX_ACTORS:
        raise SettingsError(
            f"{digits[:20]!r} copies of the model cannot be at work. Write a whole number from 0 to {MAX_ACTORS}, "
            "or leave it empty."
        )
    return int(digits)


def delete_dataset(context: PageContext, name: str | None) -> None:
    """Remove a dataset with what was uploaded for it.

    Raises:
        EncoreError: there is none, or something is at work on it.
    """
    if not name:
        raise NothingGiven("Choose a dataset first.")
    for run in context.studio.runs.list():
        if run.dataset == name and run.state.is_active:
            raise DatasetInUse(f"{run.voice} learns from {name}. Cancel that run first, or wait for its end.")
    context.studio.datasets.delete(name)


def proposed_name(source: Source | None, taken: Sequence[str]) -> str:
    """A name that is free, after the voice."""
    spoken = (source.sample or source.name.rsplit(".", 1)[0]) if source is not None else ""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", spoken).strip("-_")[:40] or "voice"
    names = [stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


def _keep(folder: Path, material: Material) -> tuple[list[Path], list[Path]]:
    """The page's own folder ends with the program, and a build goes on without it."""
    recordings = [_place(path, folder / f"{index:03}") for index, path in enumerate(material.recordings)]
    if material.sample:
        recordings += _write_sentences(get_sample(material.sample), folder / "sample")
    texts = [_place(path, folder / f"texts-{index:03}") for index, path in enumerate(material.transcripts)]
    if material.transcript:
        text = recordings[0].with_suffix(".txt")
        text.write_text(material.transcript + "\n", encoding="utf-8")
        texts.append(text)
    return recordings, texts


def _write_sentences(sample: SampleVoice, folder: Path) -> list[Path]:
    """A sample with what each sentence says: so that it can be tried where nobody can write down what is said."""
    folder.mkdir(parents=True, exist_ok=True)
    recording = read_reference(sample.path)
    paths = []
    for number, sentence in enumerate(sample.sentences):
        start, end = (
            round(seconds * recording.sample_rate)
            for seconds in (max(0.0, sentence.start_seconds - MARGIN_SECONDS), sentence.end_seconds + MARGIN_SECONDS)
        )
        path = folder / f"{sample.name}-{number:02}.wav"
        write_wav(path, recording.samples[start:end], recording.sample_rate)
        path.with_suffix(".txt").write_text(sentence.text + "\n", encoding="utf-8")
        paths.append(path)
    return paths


def _place(path: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / path.name
    place.unlink(missing_ok=True)
    try:
        os.link(path, place)
    except OSError:
        shutil.copyfile(path, place)
    return place
