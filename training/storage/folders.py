"""Folders in a storage: whole or absent, named file by file with hashes, taken up again where a transfer stopped.

NAME/SHA256           each file's content
NAME/manifest.json    which files the folder has, with their hashes; written last, and read first

What no manifest names is not there: the rest of a transfer that was cut off, which the next one goes on from.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, field_validator

from training.disk_room import free_bytes_at, is_full
from training.errors import StorageDamaged, StorageError
from training.model.checkpoint.atomic_folder import sync_tree
from training.model.checkpoint.hashes import HASHES_FILE, read_hashes
from training.storage.attempts import LocalFault
from training.storage.objects import ObjectStore

MANIFEST_FILE = "manifest.json"
MAX_TRANSFERS = 4
"""Files that are sent or fetched at the same time; more divide the same line."""

_SPARE_BYTES = 2**20
_PARTIAL = ".partial"


class StoredFile(BaseModel):
    """One file of a stored folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    num_bytes: NonNegativeInt


class Manifest(BaseModel):
    """The files of a stored folder, by their names in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: dict[str, StoredFile]

    @field_validator("files")
    @classmethod
    def _stay_inside(cls, files: dict[str, StoredFile]) -> dict[str, StoredFile]:
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or str(path) != name or name == ".":
                raise ValueError(f"{name!r} is no name of a file in a folder")
        return files

    @property
    def num_bytes(self) -> int:
        """Of all files together."""
        return sum(file.num_bytes for file in self.files.values())


def read_manifest(store: ObjectStore, name: str) -> Manifest | None:
    """Which files a stored folder has; None where it is not stored, or not yet.

    Raises:
        StorageDamaged: the manifest is not one.
        StorageError: the storage cannot be read.
    """
    content = store.read(f"{name}/{MANIFEST_FILE}")
    if content is None:
        return None
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        raise StorageDamaged(
            f"{MANIFEST_FILE} of {name} at {store.location} is damaged. Store {name} again from where it is intact."
        ) from error


def describe(folder: Path, names: Iterable[str] | None = None) -> Manifest:
    """Hash the files of a folder on this machine: all of them, or those of the given names.

    Raises:
        StorageError: one cannot be read.
    """
    try:
        listed = sorted(names) if names is not None else _names_in(folder)
        with ThreadPoolExecutor(MAX_TRANSFERS) as threads:
            files = list(threads.map(lambda name: _describe_file(folder / name), listed))
    except OSError as error:
        raise _unreadable(folder, error) from error
    return Manifest(files=dict(zip(listed, files, strict=True)))


def describe_hashed(folder: Path) -> Manifest:
    """The files that a folder's own `hashes.json` lists, and the list itself; all files where there is none.

    What was damaged since is not sent, and a file that somebody put there meanwhile is none of them.

    Raises:
        StorageError: one cannot be read.
    """
    try:
        hashes = read_hashes(folder)
        if hashes is None:
            return describe(folder)
        files = {
            name: StoredFile(sha256=digest, num_bytes=(folder / name).stat().st_size) for name, digest in hashes.items()
        }
        return Manifest(files={**files, HASHES_FILE: _describe_file(folder / HASHES_FILE)})
    except OSError as error:
        raise _unreadable(folder, error) from error


def put_folder(
    store: ObjectStore, name: str, folder: Path, manifest: Manifest | None = None, *, reads_back: bool = False
) -> Manifest:
    """Store a folder's files, which nobody sees before all of them are there. What is there already is not sent again.

    Args:
        store: where to.
        name: of the stored folder; one that is there already is replaced.
        folder: on this machine; it must not change meanwhile.
        manifest: its files, if they are known.
        reads_back: compare what was stored with what was sent by reading it, for those who then delete the folder;
            otherwise sizes are compared.

    Raises:
        StorageError: it could not be stored; what has arrived is used by the next attempt.
    """
    manifest = manifest if manifest is not None else describe(folder)
    put_files(store, name, folder, manifest, reads_back=reads_back)
    put_manifest(store, name, manifest)
    return manifest


def put_manifest(store: ObjectStore, name: str, manifest: Manifest) -> None:
    """The second part of `put_folder`: from now on the folder is there. Raises StorageError."""
    store.write(f"{name}/{MANIFEST_FILE}", manifest.model_dump_json(indent=1).encode() + b"\n")


def put_files(store: ObjectStore, name: str, folder: Path, manifest: Manifest, *, reads_back: bool = False) -> None:
    """The first part of `put_folder`: the files without the manifest, for one of several machines that add to a folder.

    Raises:
        StorageError: one could not be stored, or changed meanwhile.
    """
    sources = {file.sha256: (folder / path, file) for path, file in manifest.files.items()}
    there = store.sizes(name)

    def send(sha256: str) -> None:
        path, file = sources[sha256]
        is_there = there.get(sha256) == file.num_bytes
        if is_there and (not reads_back or store.digest(f"{name}/{sha256}") == sha256):
            return
        try:
            sent = store.upload(f"{name}/{sha256}", path)
        except LocalFault as fault:
            raise _unreadable(folder, fault.error) from fault
        if sent != sha256:
            store.delete(f"{name}/{sha256}")
            raise StorageError(
                f"{path} is not what it was when it was written, and was not stored at {store.location}. "
                "Check the disk of this machine."
            )
        if reads_back and store.digest(f"{name}/{sha256}") != sha256:
            store.delete(f"{name}/{sha256}")
            raise StorageDamaged(f"{path} did not arrive at {store.location} as it was sent. Store it again.")

    in_parallel(send, sources)
    after = store.sizes(name)
    for sha256, (path, file) in sources.items():
        if after.get(sha256) != file.num_bytes:
            raise StorageDamaged(f"{path} did not arrive whole at {store.location}. Store {folder.name} again.")


def get_folder(store: ObjectStore, name: str, destination: Path) -> Manifest | None:
    """Bring a stored folder to this machine, whole or not at all; None where it is not stored.

    A folder that is there already is taken as it is if its files are those of the manifest, and replaced otherwise.
    What an attempt has fetched before it was cut off is fetched no more. Several processes may ask for the same.

    Raises:
        StorageDamaged: what is stored is not what was put there.
        StorageError: the storage cannot be read, or this machine has no room.
    """
    manifest = read_manifest(store, name)
    if manifest is None:
        return None
    coming = destination.with_name(f".{destination.name}.coming")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(destination.with_name(f".{destination.name}.lock")):
            if destination.is_dir() and not _missing(manifest, destination):
                return manifest
            coming.mkdir(exist_ok=True)
            _fetch(store, name, manifest, coming, name)
            sync_tree(coming)
            shutil.rmtree(destination, ignore_errors=True)
            coming.rename(destination)
    except OSError as error:
        raise _unwritable(store, name, destination.parent, error) from error
    return manifest


def fetch_files(store: ObjectStore, name: str, manifest: Manifest, folder: Path, what: str) -> None:
    """Bring files that `put_files` has stored into a folder of this machine, but for those that are there already.

    Errors say that they belong to `what`.

    Raises:
        StorageDamaged: what is stored is not what was put there; other files may have come.
        StorageError: the storage cannot be read, or this machine has no room.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(store, name, manifest, folder, what)
    except OSError as error:
        raise _unwritable(store, what, folder.parent, error) from error


def delete_folder(store: ObjectStore, name: str) -> None:
    """Remove a stored folder; from the first moment on nobody sees half of it. Raises StorageError."""
    store.delete(f"{name}/{MANIFEST_FILE}")
    store.delete_below(name)


def list_folders(store: ObjectStore, parent: str) -> list[str]:
    """Names of the whole folders directly below another one, in order. Raises StorageError."""
    ending = f"/{MANIFEST_FILE}"
    found = (path.removesuffix(ending) for path in store.sizes(parent) if path.endswith(ending))
    return sorted(path for path in found if "/" not in path)


def _fetch(store: ObjectStore, name: str, manifest: Manifest, folder: Path, what: str) -> None:
    missing = _missing(manifest, folder)
    needed = sum(manifest.files[path].num_bytes for path in missing)
    if (free := free_bytes_at(folder)) < needed + _SPARE_BYTES:
        raise StorageError(
            f"The disk of {folder.parent} has no room for {what}: it needs {needed / 1e6:.1f} MB, and "
            f"{free / 1e6:.1f} MB are free. Free some space on this machine and try again."
        )

    def fetch(path: str) -> None:
        target, file = folder / path, manifest.files[path]
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + _PARTIAL)
        try:
            came = store.download(f"{name}/{file.sha256}", partial)
            if came != file.sha256:
                # A connection may have spoilt it.
                came = store.download(f"{name}/{file.sha256}", partial)
        except FileNotFoundError as error:
            raise StorageDamaged(f"{path} of {what} is missing at {store.location}. Store {what} again.") from error
        except LocalFault as fault:
            partial.unlink(missing_ok=True)
            raise _unwritable(store, what, folder.parent, fault.error) from fault
        if came != file.sha256:
            partial.unlink()
            raise StorageDamaged(
                f"{path} of {what} at {store.location} is not what was stored. Store {what} again from where it is "
                "intact."
            )
        partial.replace(target)

    in_parallel(fetch, missing)


def _missing(manifest: Manifest, folder: Path) -> list[str]:
    """Files of a manifest that a folder has not, or has otherwise."""

    def is_missing(item: tuple[str, StoredFile]) -> bool:
        path, file = folder / item[0], item[1]
        try:
            return path.stat().st_size != file.num_bytes or _describe_file(path) != file
        except OSError:
            return True

    with ThreadPoolExecutor(MAX_TRANSFERS) as threads:
        flags = list(threads.map(is_missing, manifest.files.items()))
    return [name for name, is_gone in zip(manifest.files, flags, strict=True) if is_gone]


def in_parallel(work: Callable[[str], None], names: Iterable[str]) -> None:
    """Do it for all names, a few at a time; after a failure no further one is begun. Raises what `work` does."""
    with ThreadPoolExecutor(MAX_TRANSFERS) as threads:
        begun = [threads.submit(work, name) for name in names]
        try:
            for one in begun:
                one.result()
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise


def _names_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _describe_file(path: Path) -> StoredFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return StoredFile(sha256=digest, num_bytes=file.tell())


def _unreadable(folder: Path, error: OSError) -> StorageError:
    return StorageError(f"{folder} could not be stored: {error.strerror}. Check the disk of this machine.")


def _unwritable(store: ObjectStore, name: str, folder: Path, error: OSError) -> StorageError:
    if is_full(error):
        return StorageError(
            f"The disk of {folder} became full while {name} was fetched from {store.location}. Free some space on this "
            "machine and try again; what has arrived is kept."
        )
    return StorageError(f"{name} could not be written to {folder}: {error.strerror}. Check the disk of this machine.")
