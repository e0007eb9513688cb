"""Files that a home has lost come back: from another place in the home that has the same bytes, or from the storage."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from backend.store.artifacts import ARTIFACTS_FOLDER
from backend.store.errors import ArtifactError
from training.disk_room import is_full
from training.errors import StorageDamaged, StorageError, StorageRefused, StorageUnreachable
from training.model.checkpoint.atomic_folder import sync
from training.model.owner import working_name
from training.storage.folders import Manifest, StoredFile, fetch_files, in_parallel
from training.storage.objects import ObjectStore


class LostFiles:
    """Files of a dataset on their way back into a home, each content once.

    Attributes:
        problem: why one of them did not come.
    """

    def __init__(self, home: Path, store: ObjectStore, place: str, name: str) -> None:
        """Of the dataset `name`; `place` has files by their hashes in the storage."""
        self.problem: StorageError | None = None
        self._home, self._store, self._place, self._name = home, store, place, name
        self._folder = home / ARTIFACTS_FOLDER / "incoming" / working_name()
        self._sources: dict[str, Path] = {}

    def fetch(self, lost: Mapping[str, StoredFile], stored: Manifest, there: frozenset[str]) -> None:
        """Find each content under another name in the home, or else in the storage. One that fails stops no other.

        Raises:
            StorageUnreachable, StorageRefused: the storage cannot be used.
        """
        twins = {file.sha256: self._home / path for path, file in stored.files.items() if path in there}
        paths = {file.sha256: path for path, file in lost.items()}
        found: dict[str, Path] = {}

        def find(sha256: str) -> None:
            path, twin = paths[sha256], twins.get(sha256)
            if twin is not None and digest_of_file(twin) == sha256:
                found[sha256] = twin
            elif self._fetch(path, lost[path]):
                found[sha256] = self._folder / path

        in_parallel(find, paths)
        self._sources = {path: found[file.sha256] for path, file in lost.items() if file.sha256 in found}

    def _fetch(self, path: str, file: StoredFile) -> bool:
        try:
            wanted = Manifest(files={path: file})
            fetch_files(self._store, self._place, wanted, self._folder, f"the dataset {self._name}")
            sync(self._folder / path)
        except (StorageUnreachable, StorageRefused):
            raise
        except StorageDamaged:
            self.problem = StorageDamaged(
                f"{path} of the dataset {self._name} is lost here, and missing or damaged at {self._store.location}. "
                "Build the dataset again."
            )
        except StorageError as error:
            self.problem = error
        except OSError as error:
            self.problem = StorageError(f"{path} of the dataset {self._name} did not come back: {error.strerror}.")
        else:
            return True
        return False

    def place(self, paths: Iterable[str]) -> int:
        """Put those that were found where they belong; returns how many. Raises ArtifactError."""
        num_placed = 0
        for path in paths:
            if path in self._sources:
                try:
                    _place(self._sources[path], self._home / path)
                except OSError as error:
                    problem = "the disk is full; free some space" if is_full(error) else str(error.strerror)
                    raise ArtifactError(
                        f"{path} of the dataset {self._name} did not come back: {problem} and try again."
                    ) from error
                num_placed += 1
        return num_placed

    def close(self) -> None:
        """Remove what was fetched and is not in its place."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _place(source: Path, destination: Path) -> None:
    """The same bytes under a second name, whole or not at all."""
    partial = destination.with_name(f".{secrets.token_hex(16)}.partial")
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        try:
            os.link(source, partial)
        except OSError:
            # Another file system, or one without links.
            shutil.copyfile(source, partial)
            sync(partial)
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)


def digest_of_file(path: Path) -> str | None:
    """The SHA-256 of a file's content; None where there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
