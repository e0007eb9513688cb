"""Whom a run teaches: each speaker is a dataset, which is found, read and checked here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from backend.dataset.storage.dataset_table import DatasetTable
from backend.dataset.storage.lock import DATASETS_FOLDER
from backend.runs.errors import RunInvalid
from backend.runs.storage.run_table import RunTable
from backend.store.home import Home
from backend.voices.errors import VoiceNameTaken, VoiceNotFound
from backend.voices.names import clean_name, name_key
from backend.voices.registry import Voices
from training.data.code_rows import ROWS_FILE, CodeRow, DatasetCard, read_card, read_code_rows
from training.job import JobSpeaker

MIN_CLIPS = 2
"""One to learn from and one to evaluate with, at the very least."""

_UNNAMED = "voice"


class SpeakerRequest(BaseModel):
    """One of several speakers that a user asks for.

    Attributes:
        dataset: name of one in the home, or its folder.
        voice: name of the new voice; that of the dataset when None.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str | Path
    voice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Speaker:
    """A speaker of a run.

    Attributes:
        voice: name of the voice, as it will be stored.
        folder: of the dataset.
        card: its description.
        rows: its clips.
    """

    voice: str
    folder: Path
    card: DatasetCard
    rows: Sequence[CodeRow]

    @property
    def of_job(self) -> JobSpeaker:
        """As a job names them."""
        return JobSpeaker(voice=self.voice, dataset=self.folder, dataset_digest=self.card.digest)


def find_speakers(
    home: Home, dataset: str | Path, voice: str | None, more: Sequence[SpeakerRequest], *, keeps_voice: bool
) -> list[Speaker]:
    """Everybody whom a run would teach, the first one first.

    Args:
        home: of the datasets.
        dataset: of the first.
        voice: name of the first; None while the run is only looked at.
        more: the others.
        keeps_voice: whether a voice of the library is made of each.

    Raises:
        EncoreError: a dataset is missing, or has too little in it; a name is taken, or two have the same.
    """
    asked = [SpeakerRequest(dataset=dataset, voice=voice), *more]
    found = [find_dataset(home.folder, one.dataset) for one in asked]
    names = [
        _name(home, one, folder, len(asked), keeps_voice=keeps_voice)
        for one, (folder, _) in zip(asked, found, strict=True)
    ]
    for number, (folder, card) in enumerate(found):
        if folder.resolve() in [other.resolve() for other, _ in found[:number]]:
            raise RunInvalid(f"The dataset {card.name} is named twice. Each speaker has a dataset of their own.")
        if name_key(names[number]) in map(name_key, names[:number]):
            raise RunInvalid(f"Two speakers would be called {names[number]!r}. Give each a name of their own.")
    speakers = []
    for name, (folder, card) in zip(names, found, strict=True):
        rows = read_code_rows(folder / ROWS_FILE)
        _check_clips(rows, card)
        speakers.append(Speaker(voice=name, folder=folder, card=card, rows=rows))
    return speakers


def first_name(home: Home, voice: str | None, *, keeps_voice: bool) -> str:
    """The name of a run's only voice. Raises EncoreError where it is taken."""
    return _UNNAMED if voice is None else _free_name(home, voice, keeps_voice=keeps_voice)


def _name(home: Home, asked: SpeakerRequest, folder: Path, num_speakers: int, *, keeps_voice: bool) -> str:
    if asked.voice is not None:
        return _free_name(home, asked.voice, keeps_voice=keeps_voice)
    return _UNNAMED if num_speakers == 1 else clean_name(folder.name)


def _free_name(home: Home, voice: str, *, keeps_voice: bool) -> str:
    """The name as it will be stored, unless it is taken or about to be."""
    name = clean_name(voice)
    if not keeps_voice:
        return name
    try:
        Voices(home).get(name)
    except VoiceNotFound:
        pass
    else:
        raise VoiceNameTaken(f"There is a voice {name!r} already. Choose another name, or delete that voice first.")
    for run in RunTable(home.database).list():
        if run.state.is_active and name_key(run.voice) == name_key(name):
            raise VoiceNameTaken(f"Run {run.id} is making a voice {name!r} already. Choose another name, or cancel it.")
    return name


def find_dataset(home: Path, dataset: str | Path) -> tuple[Path, DatasetCard]:
    """A dataset of the home by its name, or any by its folder. Raises RunInvalid, TrainingDataError."""
    named = home / DATASETS_FOLDER / str(dataset)
    folder = named if named.is_dir() else Path(dataset).expanduser().absolute()
    if not folder.is_dir():
        # Locks and what is being written lie beside them, hidden.
        listed = named.parent.iterdir() if named.parent.is_dir() else ()
        found = sorted(path.name for path in listed if path.is_dir() and not path.name.startswith("."))
        known = f"There are: {', '.join(found[:20])}." if found else "Build one with `app.py dataset build`."
        raise RunInvalid(f"There is no dataset {str(dataset)[:100]!r}. {known}")
    return folder, read_card(folder)


def dataset_problems(home: Home, folder: Path, *, accepts_synthetic: bool) -> tuple[str, ...]:
    """Why nobody should learn from a dataset of this home as it is; one that was made elsewhere has no history here."""
    table = DatasetTable(home)
    is_of_home = folder.resolve().parent == (home.folder / DATASETS_FOLDER).resolve()
    if not is_of_home or folder.name not in table.names():
        return ()
    synthetic = () if accepts_synthetic else _synthetic_problems(table, folder.name)
    return (*_unapplied_problems(table, folder.name), *synthetic)


def _unapplied_problems(table: DatasetTable, name: str) -> tuple[str, ...]:
    """Changes of clips that are not in the training files: a run would silently learn without them."""
    if table.rows_are_current(name):
        return ()
    return (
        f"Clips of the dataset {name} were changed, and these changes are not applied yet: a fine-tune would learn "
        f"without them. Press “Apply the changes” under Data, or run `app.py dataset apply {name}`.",
    )


def _synthetic_problems(table: DatasetTable, name: str) -> tuple[str, ...]:
    """Recordings that say they are Encore's own speech: learning from them is asked about."""
    made = [Path(one.name).name for one in table.recordings(name) if one.details.made_by_encore]
    if not made:
        return ()
    listed = ", ".join(made[:5]) + (f" and {len(made) - 5} more" if len(made) > 5 else "")
    return (
        f"Encore itself made {listed}: a voice that learns from it is a copy of a copy. Leave it out, or "
        f"choose to learn from it: --accept-synthetic, or under Advanced on the page.",
    )


def _check_clips(rows: Sequence[CodeRow], card: DatasetCard) -> None:
    """Refuse a dataset with too little in it. Raises RunInvalid."""
    if not rows:
        raise RunInvalid(f"The dataset {card.name} has no accepted clips. Accept some, or add recordings.")
    if len(rows) < MIN_CLIPS:
        raise RunInvalid(
            f"The dataset {card.name} has one accepted clip, and a fine-tune needs {MIN_CLIPS} or more. "
            "Add recordings, or clone the voice without fine-tuning."
        )
