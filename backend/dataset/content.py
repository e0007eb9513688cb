"""What a dataset consists of: rows in the tables of the database, files that these name, and what a fine-tune reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.encoded_clip import TENSORS_SUFFIX
from backend.dataset.clips.stage_results import WAV_SUFFIX, EncoderFacts
from backend.dataset.clips.views import ClipDetails, RecordingDetails
from backend.dataset.stages.tokenize import tokenize_key
from backend.dataset.storage.lock import DATASETS_FOLDER, is_locked
from backend.dataset.storage.lost_files import digest_of_file
from backend.dataset.storage.training_files import dataset_folder
from backend.dataset.storage.workspace import UPLOADS_FOLDER, DatasetWorkspace
from backend.store.home import Home
from backend.store.rows import understanding
from backend.store.tables import rows_of
from training.data.code_rows import AUDIO_FOLDER, CARD_FILE, ROWS_FILE
from training.model.checkpoint.hashes import HASHES_FILE
from training.storage.folders import Manifest, StoredFile

ROWS_FOLDER = "rows"
"""What the database knows of a dataset, among its stored files, is a file in it that tells when the dataset was begun:
another one that has taken its name was begun at another time."""

_UPLOAD_PARTS = 3
"""Of a path: `uploads/NAME/UPLOAD` has the recordings of one upload with the texts beside them."""


@dataclass(frozen=True, kw_only=True)
class DatasetContent:
    """A dataset as the home has it.

    Attributes:
        rows: see `read_rows`.
        named: see `files_named_by`.
        files: all of its files that are there.
        card: hash of its card; None where the training files are lost, or were never written.
    """

    name: str
    rows: bytes
    named: frozenset[str]
    files: frozenset[str]
    card: str | None

    @property
    def rows_name(self) -> str:
        """Of the rows among the stored files."""
        table, row = json.loads(self.rows.partition(b"\n")[0])
        assert table == "datasets", "the dataset's own row comes first"
        begun_at = "".join(filter(str.isalnum, str(row["created_at"])))
        return f"{ROWS_FOLDER}/{begun_at}.jsonl"

    @property
    def rows_file(self) -> StoredFile:
        """The rows as they are stored."""
        return StoredFile(sha256=hashlib.sha256(self.rows).hexdigest(), num_bytes=len(self.rows))

    @property
    def card_name(self) -> str:
        """The card's place in the home."""
        return f"{DATASETS_FOLDER}/{self.name}/{CARD_FILE}"

    def is_stored_as(self, manifest: Manifest) -> bool:
        """Whether the storage has all of it as it is here."""
        card, rows = manifest.files.get(self.card_name), manifest.files.get(self.rows_name)
        is_same = rows == self.rows_file and card is not None and card.sha256 == self.card
        return is_same and self.files <= manifest.files.keys()

    def has_taken_the_name_of(self, manifest: Manifest) -> bool:
        """Whether another dataset is stored, and this one is not finished yet."""
        return self.card is None and bool(manifest.files) and self.rows_name not in manifest.files

    def lost(self, manifest: Manifest) -> dict[str, StoredFile]:
        """What is stored and missing here; training files only where they are of the version that is here, if any."""
        stored = manifest.files.get(self.card_name)
        is_same = self.rows_name in manifest.files if self.card is None else stored and stored.sha256 == self.card

        def is_lost(path: str) -> bool:
            if self.is_of_training(path):
                # Without the card, nobody knows of which version the other lists are.
                return bool(is_same) and (path not in self.files or (self.card is None and not is_audio(path)))
            return path not in self.files and is_among(path, self.named)

        return {path: file for path, file in manifest.files.items() if is_lost(path)}

    def may_change(self, path: str) -> bool:
        """Whether a file may be another one later; all but three are named by their content, or by their upload."""
        return self.is_of_training(path) and not is_audio(path)

    def is_of_training(self, path: str) -> bool:
        """Whether a file is one that a fine-tune reads."""
        return path.startswith(f"{DATASETS_FOLDER}/{self.name}/")


class DatasetReader:
    """Looks at the datasets of a home; what was looked at before costs less."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._named: dict[str, tuple[bytes, frozenset[str]]] = {}

    def read(self, name: str) -> DatasetContent | None:
        """A dataset as it is here; None while it is being built or edited, and where it is gone.

        Raises:
            StoreError: the database cannot be read, or a row cannot be understood.
        """
        home, own = self._home.folder, dataset_folder(self._home.folder, name)
        rows = b"" if is_locked(home, name) else read_rows(self._home, name)
        if not rows:
            return None
        digest, named = self._named.get(name, (b"", frozenset()))
        if digest != (now := hashlib.sha256(rows).digest()):
            named = files_named_by(rows, home, name)
            self._named[name] = now, named
        training = (own / CARD_FILE, own / ROWS_FILE, own / HASHES_FILE, *(own / AUDIO_FOLDER).glob(f"*{WAV_SUFFIX}"))
        files = _files_at(home, [*named, *(path.relative_to(home).as_posix() for path in training)])
        return DatasetContent(name=name, rows=rows, named=named, files=files, card=digest_of_file(own / CARD_FILE))


def read_rows(home: Home, name: str) -> bytes:
    """What the database knows of a dataset, a line for each row: `["dataset_clips", {"key": ...}]`; empty for nothing.

    Raises:
        StoreError: the database cannot be read.
    """
    with home.database.reading() as connection:
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows_of(connection, "dataset", name))


def files_named_by(rows: bytes, home: Path, name: str) -> frozenset[str]:
    """Files and folders of a home that belong to a dataset with these rows, relative to it; some may not be there.

    Sound and codes of its clips, sound of its recordings, and what was uploaded for it; without its training files, and
    without results from which only a build goes on, which makes them again.

    Raises:
        RowDamaged: a row cannot be understood.
    """
    with understanding(f"the dataset {name}"):
        found = {path for path in _paths_named_by(rows, DatasetWorkspace(home)) if path.is_relative_to(home)}
    return frozenset(path.relative_to(home).as_posix() for path in found)


def _paths_named_by(rows: bytes, workspace: DatasetWorkspace) -> Iterator[Path]:
    artifacts, encoder, keeps_originals = workspace.artifacts, "", False
    # Those of the dataset itself come first.
    for table, row in map(json.loads, rows.splitlines()):
        if table == "datasets":
            job = BuildJob.model_validate_json(row["job"])
            encoder = EncoderFacts.model_validate_json(row["encoder"]).identity if row["encoder"] else ""
            keeps_originals = job.keeps_originals
            yield from _uploads((*job.recordings, *job.transcripts), workspace.home)
        elif table == "dataset_recordings":
            recording = RecordingDetails.model_validate_json(row["details"])
            if recording.audio_id:
                yield artifacts.path(recording.audio_id, WAV_SUFFIX)
            if keeps_originals and row["recording_id"]:
                yield artifacts.path(row["recording_id"], Path(row["name"]).suffix)
        elif table == "dataset_clips":
            clip = ClipDetails.model_validate_json(row["details"])
            for clip_id in {clip.current.clip_id, clip.original.clip_id}:
                yield artifacts.path(clip_id, WAV_SUFFIX)
            if clip.tensors_id is not None:
                yield artifacts.path(clip.tensors_id, TENSORS_SUFFIX)
                yield workspace.cache.path("tokenize", tokenize_key(clip.current.clip_id, encoder))


def _uploads(given: tuple[str, ...], home: Path) -> Iterator[Path]:
    for path in map(Path, given):
        if path.is_relative_to(home / UPLOADS_FOLDER) and ".." not in path.parts:
            yield home / Path(*path.relative_to(home).parts[:_UPLOAD_PARTS])


def is_audio(path: str) -> bool:
    """Whether a place in the home is that of a clip among training files, which is named by its content."""
    parts = PurePosixPath(path).parts
    return parts[0] == DATASETS_FOLDER and parts[2:-1] == (AUDIO_FOLDER,)


def is_among(path: str, places: Collection[str]) -> bool:
    """Whether a place in the home is one of some files and folders, or in one of them."""
    return path in places or any(str(parent) in places for parent in PurePosixPath(path).parents)


def _files_at(home: Path, places: Iterable[str]) -> frozenset[str]:
    """The files that are there of some files and folders, relative to the home as these are."""
    found = set()
    for place in places:
        path = home / place
        if path.is_file():
            found.add(place)
        elif path.is_dir():
            found |= {file.relative_to(home).as_posix() for file in path.rglob("*") if file.is_file()}
    return frozenset(found)
