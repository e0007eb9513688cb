"""Files that are named by what is in them: written once, never changed, shared by whoever needs the same bytes."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from backend.store.errors import ArtifactError
from training.model.owner import working_name

ARTIFACTS_FOLDER = "artifacts"
DIGITS = 32
"""Of a hash in a name: 128 bits are beyond chance, and names stay short."""


class Artifacts:
    """The folder `HOME/artifacts`; it may lie on storage that other machines share."""

    def __init__(self, home: Path) -> None:
        self.folder = home / ARTIFACTS_FOLDER

    def put(self, content: bytes, suffix: str) -> str:
        """Keep `content`, and tell the hash by which it is found again; the same bytes are stored once.

        Raises:
            ArtifactError: the disk is full or cannot be written.
        """
        digest = digest_of(content)
        path = self.path(digest, suffix)
        if not path.is_file():
            write_whole(path, content)
        return digest

    def adopt(self, file: Path, suffix: str) -> str:
        """Keep a finished file of this folder's file system, however large, and tell its hash; `file` is gone then.

        Raises:
            ArtifactError: the disk cannot be written.
        """
        try:
            with file.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()[:DIGITS]
            path = self.path(digest, suffix)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, path)
            sync_folder(path.parent)
        except OSError as error:
            raise _not_stored(file.name, error) from error
        return digest

    def keep_copy(self, file: Path, suffix: str) -> str:
        """Keep a copy of a file, however large, and tell its hash.

        Raises:
            ArtifactError: the disk is full, or a file cannot be read or written.
        """
        with self.incoming(suffix) as copy:
            try:
                shutil.copyfile(file, copy)
            except OSError as error:
                raise _not_stored(file.name, error) from error
            return self.adopt(copy, suffix)

    @contextmanager
    def incoming(self, suffix: str) -> Iterator[Path]:
        """A name to write a file under before it is adopted; what is left there at the end is removed."""
        file = self.folder / "incoming" / working_name(suffix)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            yield file
        finally:
            # As for takes: the next start sweeps it.
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def path(self, digest: str, suffix: str) -> Path:
        """Where an artefact is, or would be."""
        return self.folder / digest[:2] / f"{digest}{suffix}"

    def read(self, digest: str, suffix: str) -> bytes:
        """The bytes of an artefact.

        Raises:
            ArtifactError: it is gone, or cannot be read.
        """
        path = self.path(digest, suffix)
        try:
            return path.read_bytes()
        except OSError as error:
            raise ArtifactError(f"{path} cannot be read: {error.strerror}. Build again what it belongs to.") from error


def digest_of(content: bytes) -> str:
    """Name of an artefact with this content."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is either complete, even after a power loss, or not there.

    Raises:
        ArtifactError: the disk is full or cannot be written.
    """
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise _not_stored(path.name, error) from error


def sync_folder(folder: Path) -> None:
    """Make a renaming in `folder` survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_stored(name: str, error: OSError) -> ArtifactError:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    problem = "the disk is full; free some space" if is_full else f"{error.strerror}; set ENCORE_HOME elsewhere"
    return ArtifactError(f"{name} was not stored: {problem} and try again.")
