"""The workspace of a machine that does not see the home: what stages read and write goes through the object storage.

builds/HOME/NAME/begun                     for as long as the build lasts; HOME tells homes apart that share a storage
builds/HOME/NAME/results/STAGE/KEY.json    results, as in the home's cache; written after the files that they refer to
builds/HOME/NAME/files/SHA256.SUFFIX       recordings, sound and codes, named by their content as artefacts are
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from pydantic import ValidationError
from typing_extensions import override

from backend.dataset.clips.stage_counts import Stage
from backend.dataset.clips.stage_results import StageResult
from backend.dataset.storage.workspace import DatasetWorkspace, Result, StageCache
from backend.store.artifacts import Artifacts
from backend.store.errors import ArtifactError
from training.disk_room import is_full
from training.errors import StorageDamaged, StorageError
from training.storage.attempts import LocalFault
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore
from training.stored_inputs import cache_folder, fetch_model

BUILDS_FOLDER, FILES_FOLDER, RESULTS_FOLDER = "builds", "files", "results"
_BEGUN = "begun"
_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class StoredBuild:
    """A build's place in a storage. Pickled to every worker.

    Attributes:
        location: of the storage.
        name: of the build's folder in it.
        proof: a file in the home, by which a machine knows whether it sees the home.
        model: under which the model is stored, where a machine does not see it.
        transcriber: the same of the Whisper's weights.
    """

    location: StorageLocation
    name: str
    proof: Path
    model: str | None = None
    transcriber: str | None = None

    @property
    def store(self) -> ObjectStore:
        """The storage."""
        return ObjectStore(self.location)

    @property
    def begun(self) -> str:
        """The object that is there for as long as the build lasts."""
        return f"{self.name}/{_BEGUN}"

    @property
    def files(self) -> str:
        """The folder of recordings, sound and codes."""
        return f"{self.name}/{FILES_FOLDER}"

    @property
    def results(self) -> str:
        """The folder of results."""
        return f"{self.name}/{RESULTS_FOLDER}"

    def result(self, stage: Stage, key: str) -> str:
        """The object of a result."""
        return f"{self.results}/{stage}/{key}.json"

    def put_file(self, store: ObjectStore, file: Path, digest: str, suffix: str) -> None:
        """Store a file that is named by its content. Raises StorageError."""
        name = f"{self.files}/{digest}{suffix}"
        try:
            sent = store.upload(name, file)
        except LocalFault as fault:
            raise StorageError(f"{file} could not be stored: {fault.error.strerror}. Build again.") from fault
        if not sent.startswith(digest):
            store.delete(name)
            raise StorageError(f"{file} is not what it was when the build began. Build again.")

    def put_result(self, store: ObjectStore, stage: Stage, key: str, result: StageResult) -> None:
        """Store a result whose files are stored. Raises StorageError."""
        store.write(self.result(stage, key), result.model_dump_json().encode())

    def fetch(self, store: ObjectStore, digest: str, suffix: str, file: Path) -> None:
        """Write what was stored to a file.

        Raises:
            StorageError: it is not there, or not what was stored.
            ArtifactError: this machine's disk is full.
        """
        name = f"{self.files}/{digest}{suffix}"
        try:
            came = store.download(name, file)
            if not came.startswith(digest):
                # A connection may have spoilt it.
                came = store.download(name, file)
        except FileNotFoundError as error:
            raise StorageDamaged(f"{name} is missing at {store.location}. Build again.") from error
        except LocalFault as fault:
            problem = "the disk is full; free some space" if is_full(fault.error) else f"{fault.error.strerror}"
            raise ArtifactError(f"{digest}{suffix} was not stored: {problem} and try again.") from fault.error
        if not came.startswith(digest):
            raise StorageDamaged(f"{name} at {store.location} is not what was stored. Build again.")

    def fetch_artifact(self, store: ObjectStore, artifacts: Artifacts, digest: str, suffix: str) -> Path:
        """The file of an artefact, fetched if it is not there. Raises as `fetch`."""
        path = artifacts.path(digest, suffix)
        if not path.is_file():
            with artifacts.incoming(suffix) as coming:
                self.fetch(store, digest, suffix, coming)
                artifacts.adopt(coming, suffix)
        return path


class StoredWorkspace(DatasetWorkspace):
    """As `DatasetWorkspace`, on any machine of a cluster that has no folder in common."""

    def __init__(self, home: Path, build: StoredBuild) -> None:
        """Work below `home` where this machine sees it, otherwise in a folder of this machine's cache."""
        self.build, self._store = build, build.store
        self._sees_home = build.proof.is_file()
        super().__init__(home if self._sees_home else folder_here(build))
        self.cache = _StoredCache(self.home, self.artifacts, build, self._store)

    @override
    def file(self, digest: str, suffix: str) -> Path:
        return self.build.fetch_artifact(self._store, self.artifacts, digest, suffix)

    @override
    @contextmanager
    def original(self, recording_id: str, path: Path) -> Iterator[Path]:
        # On another machine a file of the same name may be another recording.
        if self._sees_home and path.is_file():
            yield path
            return
        with self.artifacts.incoming(path.suffix) as coming:
            self.build.fetch(self._store, recording_id, path.suffix, coming)
            yield coming

    def model(self, folder: Path) -> Path:
        """The model's folder on this machine: its own, or a copy in its cache. Raises StorageError."""
        is_here = self._sees_home and folder.is_dir()
        return folder if self.build.model is None or is_here else self._fetched(self.build.model)

    def transcriber(self, file: Path) -> Path:
        """The same of a Whisper's weights."""
        is_here = self._sees_home and file.is_file()
        name = self.build.transcriber
        return file if name is None or is_here else self._fetched(name) / file.name

    def _fetched(self, name: str) -> Path:
        fetched = fetch_model(self._store, name)
        if fetched is None:
            raise StorageDamaged(f"The model {name} is missing at {self._store.location}. Build again.")
        return fetched


class _StoredCache(StageCache):
    """Results are where all machines see them, and nowhere else: what only one machine has is lost with it."""

    def __init__(self, home: Path, artifacts: Artifacts, build: StoredBuild, store: ObjectStore) -> None:
        super().__init__(home, artifacts)
        self._build, self._store = build, store

    @override
    def lookup(self, stage: Stage, key: str, kind: type[Result]) -> Result | None:
        content = self._store.read(self._build.result(stage, key))
        try:
            return None if content is None else kind.model_validate_json(content)
        except ValidationError:
            return None

    @override
    def save(self, stage: Stage, key: str, result: StageResult) -> None:
        for digest, suffix in result.artifacts:
            self._build.put_file(self._store, self._artifacts.path(digest, suffix), digest, suffix)
        self._build.put_result(self._store, stage, key, result)


@lru_cache(maxsize=8)
def open_workspace(home: Path, build: StoredBuild | None) -> DatasetWorkspace:
    """The workspace of this process; without a stored build all machines see the home."""
    if build is None:
        return DatasetWorkspace(home)
    _sweep(build)
    return StoredWorkspace(home, build)


def folder_here(build: StoredBuild) -> Path:
    """Where a machine that does not see the home keeps what it has fetched and made for a build, until this ends."""
    place = hashlib.sha256(str(build.location).encode()).hexdigest()[:_DIGITS]
    return cache_folder() / BUILDS_FOLDER / place / PurePosixPath(build.name).relative_to(BUILDS_FOLDER)


def _sweep(build: StoredBuild) -> None:
    """Remove what builds have left on this machine that ended while it was not there."""
    own = folder_here(build)
    for folder in own.parent.parent.glob("*/*"):
        name = f"{BUILDS_FOLDER}/{folder.parent.name}/{folder.name}"
        if folder != own and build.store.read(f"{name}/{_BEGUN}") is None:
            shutil.rmtree(folder, ignore_errors=True)
