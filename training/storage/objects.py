"""Objects of a storage: whole or absent, read and written in one piece, with attempts and errors in plain words."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.fs

from training.errors import StorageError
from training.model.checkpoint.atomic_folder import sync
from training.storage.attempts import PATIENCE_SECONDS, LocalFault, attempt, no_bucket
from training.storage.filesystem import open_filesystem
from training.storage.location import StorageLocation

_CHUNK_BYTES = 4 * 2**20
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Versioned:
    """An object as it was read, with the tag by which the storage tells its versions apart."""

    tag: str
    content: bytes


class ObjectStore:
    """A storage; names of objects are relative to its prefix. May be pickled, and used by several threads."""

    def __init__(self, location: StorageLocation, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Know where it is; nothing is opened until it is used."""
        self.location = location
        self._patience_seconds = patience_seconds
        self._was_found = False

    def __getstate__(self) -> dict[str, Any]:
        # Opened anew elsewhere, with the credentials of that machine.
        return {"location": self.location, "_patience_seconds": self._patience_seconds, "_was_found": False}

    @cached_property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """Pyarrow's, for those that take one."""
        return open_filesystem(self.location)

    def path(self, name: str) -> str:
        """An object's path in `filesystem`."""
        return f"{self.location.root}/{name}" if name else self.location.root

    def read(self, name: str) -> bytes | None:
        """An object's content; None if it is not there. Raises StorageError."""
        found = self.read_if_changed(name, None)
        return None if found is None else found.content

    def read_if_changed(self, name: str, tag: str | None) -> Versioned | None:
        """An object with its tag; without content where it is still the version of `tag`, None if it is not there.

        Raises:
            StorageError: it cannot be read.
        """

        def action() -> Versioned:
            with self.filesystem.open_input_stream(self.path(name)) as stream:
                found = _tag(stream.metadata())
                if found and found == tag:
                    return Versioned(found, b"")
                content = bytes(stream.read())
                return Versioned(found or hashlib.sha256(content).hexdigest(), content)

        try:
            return self._attempt(f"Reading {name}", action)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Put an object in place of another one, or of none. Raises StorageError."""
        self._attempt(f"Writing {name}", lambda: self._write(name, lambda: iter([content])))

    def upload(self, name: str, file: Path) -> str:
        """Store a file, however large; returns the SHA-256 of what was sent.

        Raises:
            StorageError: it could not be stored.
            LocalFault: the file cannot be read.
        """
        return self._attempt(f"Uploading {name}", lambda: self._write(name, lambda: _chunks_of(file)))

    def download(self, name: str, file: Path) -> str:
        """Write an object to a file, as far as it comes; returns the SHA-256 of what came.

        Raises:
            FileNotFoundError: there is no such object.
            StorageError: it could not be read.
            LocalFault: the file cannot be written.
        """

        def action() -> str:
            digest = hashlib.sha256()
            with self.filesystem.open_input_stream(self.path(name)) as stream, _open_local(file) as local:
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    _write_local(local, chunk)
            return digest.hexdigest()

        return self._attempt(f"Fetching {name}", action)

    def digest(self, name: str) -> str | None:
        """The SHA-256 of an object as it is stored, read for that; None if it is not there. Raises StorageError."""

        def action() -> str:
            digest = hashlib.sha256()
            with self.filesystem.open_input_stream(self.path(name)) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
            return digest.hexdigest()

        try:
            return self._attempt(f"Reading {name}", action)
        except FileNotFoundError:
            return None

    def sizes(self, folder: str) -> dict[str, int]:
        """All objects below a folder with their bytes, by their names relative to it. Raises StorageError."""
        base = self.path(folder)
        selector = pyarrow.fs.FileSelector(base, allow_not_found=True, recursive=True)

        def action() -> dict[str, int]:
            found = self.filesystem.get_file_info(selector)
            files = [one for one in found if one.type == pyarrow.fs.FileType.File]
            return {one.path.removeprefix(base + "/"): one.size for one in files}

        return self._attempt(f"Listing {folder or 'everything'}", action)

    def delete(self, name: str) -> None:
        """Remove an object, if it is there. Raises StorageError."""
        try:
            self._attempt(f"Deleting {name}", lambda: self.filesystem.delete_file(self.path(name)))
        except FileNotFoundError:
            return

    def delete_below(self, folder: str) -> None:
        """Remove all objects below a folder. Raises StorageError."""
        try:
            self._attempt(f"Deleting {folder}", lambda: self.filesystem.delete_dir(self.path(folder)))
        except FileNotFoundError:
            return

    def require(self) -> None:
        """Make sure that bucket or folder exist: without them everything else looks as if it had not been stored yet.

        Raises:
            StorageError: they do not, or cannot be asked.
        """
        info = attempt(
            self.location,
            "Looking for the bucket",
            lambda: self.filesystem.get_file_info(self.location.bucket),
            patience_seconds=self._patience_seconds,
        )
        if info.type == pyarrow.fs.FileType.NotFound:
            raise no_bucket(self.location)

    def _attempt(self, what: str, action: Callable[[], _Answer]) -> _Answer:
        # A disk may be unmounted at any time, and what is written then would lie under the place where it belongs.
        if not self._was_found or self.location.scheme == "file":
            self.require()
            self._was_found = True
        return attempt(self.location, what, action, patience_seconds=self._patience_seconds)

    def _write(self, name: str, chunks: Callable[[], Iterator[bytes]]) -> str:
        if self.location.scheme == "file":
            return self._write_file(Path(self.path(name)), chunks())
        return self._send(self.path(name), chunks())

    def _write_file(self, path: Path, chunks: Iterator[bytes]) -> str:
        """A bucket shows an object when it is whole; a folder needs to be helped."""
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = self._send(str(partial), chunks)
            sync(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return digest

    def _send(self, path: str, chunks: Iterator[bytes]) -> str:
        digest = hashlib.sha256()
        stream = self.filesystem.open_output_stream(path)
        try:
            for chunk in chunks:
                digest.update(chunk)
                stream.write(chunk)
        except LocalFault:
            # There is no way to give up a stream of pyarrow's: what was sent so far is stored.
            stream.close()
            self.filesystem.delete_file(path)
            raise
        stream.close()
        return digest.hexdigest()


def open_store(url: str | None) -> ObjectStore | None:
    """The storage that a value of `ENCORE_STORAGE` names; None where it is unset or empty. Raises StorageError."""
    if not url:
        return None
    try:
        return ObjectStore(StorageLocation.parse(url))
    except ValueError as error:
        raise StorageError(f"The storage {url!r} cannot be used: {error}.") from error


def _tag(metadata: dict[Any, Any] | None) -> str:
    """What the storage calls this version; empty where it has no name for it."""
    for name, value in (metadata or {}).items():
        key = name.decode() if isinstance(name, bytes) else str(name)
        if key.lower() == "etag":
            return value.decode() if isinstance(value, bytes) else str(value)
    return ""


def _chunks_of(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise LocalFault(error) from error


def _open_local(file: Path) -> Any:  # an unbuffered file: a full disk is met by the write that fills it
    try:
        return file.open("wb", buffering=0)
    except OSError as error:
        raise LocalFault(error) from error


def _write_local(local: Any, chunk: bytes) -> None:  # see `_open_local`
    rest = memoryview(chunk)
    try:
        while rest:
            rest = rest[local.write(rest) :]
    except OSError as error:
        raise LocalFault(error) from error
