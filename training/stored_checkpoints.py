"""The checkpoints of a run in the object storage: sent beside training, fetched where a run goes on without them.

runs/NAME/checkpoints/step-00000120    a stored folder each, see `training.storage.folders`; NAME is the output's own
runs/NAME/best                         name of the best checkpoint, for workers that do not see who evaluates
runs/NAME/export                       what the run ended with, in the public format
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from training.errors import StorageDamaged, StorageError
from training.job import CHECKPOINTS_FOLDER
from training.model.checkpoint.hashes import HASHES_FILE
from training.storage.folders import (
    Manifest,
    StoredFile,
    delete_folder,
    describe,
    describe_hashed,
    get_folder,
    list_folders,
    put_files,
    put_folder,
    put_manifest,
    read_manifest,
)
from training.storage.objects import ObjectStore
from training.storage.uploads import UploadQueue

RUNS_FOLDER, EXPORT_FOLDER, BEST_FILE = "runs", "export", "best"
_POLL_SECONDS = 0.5


class StoredCheckpoints:
    """What one run has stored; used by its first worker, and by the machine that looks after the run."""

    def __init__(self, store: ObjectStore, output: Path) -> None:
        """Of the run whose output is in that folder."""
        self._store, self._local = store, output / CHECKPOINTS_FOLDER
        self.place = stored_run(output.name)

    def put(self, folder: Path) -> None:
        """Store a whole checkpoint of this machine, unless it is stored; it must not change. Raises StorageError."""
        if read_manifest(self._store, self._name(folder.name)) is None:
            put_folder(self._store, self._name(folder.name), folder, describe_hashed(folder))

    def names(self) -> list[str]:
        """Those that are whole, oldest first. Raises StorageError."""
        return list_folders(self._store, f"{self.place}/{CHECKPOINTS_FOLDER}")

    def fetch_newest(self, newer_than: str, tell: Callable[[str], None]) -> str | None:
        """Bring the newest to this machine, if this machine has none so new; returns its name.

        Args:
            newer_than: name of the newest that is here; empty where none is.
            tell: is told of those that are damaged and passed over.

        Raises:
            StorageError: the storage cannot be read, or there is no room here.
        """
        for name in reversed(self.names()):
            if name <= newer_than:
                return None
            try:
                get_folder(self._store, self._name(name), self._local / name)
            except StorageDamaged as damage:
                tell(f"{damage} An earlier checkpoint takes its place.")
                self.forget_damaged(name)
                continue
            return name
        return None

    def forget_damaged(self, name: str) -> None:
        """Make room for the checkpoint that will be trained in its place; it would be taken for that one."""
        with suppress(StorageError):
            delete_folder(self._store, self._name(name))

    def fetch(self, name: str) -> bool:
        """Bring one to this machine; whether it is stored. Raises StorageError."""
        return get_folder(self._store, self._name(name), self._local / name) is not None

    def put_part(self, save: str, part: int, folder: Path) -> None:
        """Store this machine's files of a checkpoint that several machines have written, each a part.

        Args:
            save: tells this time of saving from every other.
            part: of all parts; any numbers.
            folder: the files of this machine.

        Raises:
            StorageError: they could not be stored.
        """
        manifest = describe(folder)
        put_files(self._store, self._name(folder.name), folder, manifest, reads_back=True)
        content = manifest.model_dump_json().encode()
        self._store.write(self._part(folder.name, save, part), content)

    def join(self, save: str, parts: Sequence[int], folder: Path, *, seconds: float) -> None:
        """Wait for all parts of a checkpoint and make it a stored one.

        Raises:
            StorageError: another machine could not store its part in time, or the storage cannot be used.
        """
        files: dict[str, StoredFile] = {}
        give_up_at = time.monotonic() + seconds
        for part in parts:
            while (content := self._store.read(self._part(folder.name, save, part))) is None:
                if time.monotonic() > give_up_at:
                    raise StorageError(
                        f"Another machine did not upload its part of {folder.name} within {seconds / 60:.0f} minutes. "
                        "The log of its worker says why."
                    )
                time.sleep(_POLL_SECONDS)
            files |= Manifest.model_validate_json(content).files
        hashes = {name: file.sha256 for name, file in sorted(files.items())}
        listed = json.dumps({"sha256": hashes}, indent=1).encode() + b"\n"
        digest = hashlib.sha256(listed).hexdigest()
        files[HASHES_FILE] = StoredFile(sha256=digest, num_bytes=len(listed))
        self._store.write(f"{self._name(folder.name)}/{digest}", listed)
        put_manifest(self._store, self._name(folder.name), Manifest(files=files))
        # With those of earlier times of saving, which were cut off; machines may be ahead, but none is behind.
        for path in self._store.sizes(self._parts):
            if path.partition("/")[0] <= folder.name:
                self._store.delete(f"{self._parts}/{path}")

    def prune(self, num_kept: int, best: str | None) -> None:
        """Remove all but the newest and the best, as it is known here or was marked there. Raises StorageError."""
        old = self.names()[:-num_kept]
        kept = {best, self._marked_best()} if old else {best}
        for name in old:
            if name not in kept:
                delete_folder(self._store, self._name(name))

    def mark_best(self, name: str) -> None:
        """Keep a checkpoint from being pruned, in the place of the one that was marked before. Raises StorageError."""
        self._store.write(f"{self.place}/{BEST_FILE}", name.encode())

    def _marked_best(self) -> str | None:
        content = self._store.read(f"{self.place}/{BEST_FILE}")
        return content.decode() if content is not None else None

    def _part(self, checkpoint: str, save: str, part: int) -> str:
        return f"{self._parts}/{checkpoint}/{save}/{part}.json"

    @property
    def _parts(self) -> str:
        return f"{self.place}/parts"

    def _name(self, checkpoint: str) -> str:
        return f"{self.place}/{CHECKPOINTS_FOLDER}/{checkpoint}"


class CheckpointUploads:
    """Sends a run's checkpoints while the next steps run, and prunes what is stored as what is here."""

    def __init__(
        self, stored: StoredCheckpoints, num_kept: int, best: Callable[[], str | None], tell: Callable[[str], None]
    ) -> None:
        """Keep so many stored, and the best; `tell` is called from a thread of its own."""
        self._stored, self._num_kept, self._best, self._tell = stored, num_kept, best, tell
        self._queue = UploadQueue(self._send, tell)

    def submit(self, checkpoint: Path) -> None:
        """Have a whole checkpoint sent; waits while too many others wait."""
        self._queue.submit(checkpoint)

    def is_pending(self, checkpoint: Path) -> bool:
        """Whether a checkpoint must not be removed yet."""
        return self._queue.is_pending(checkpoint)

    def drain(self) -> None:
        """Wait until all are sent, or were told of as failed; those are here, and are sent when the run is resumed."""
        self._queue.drain()

    def _send(self, checkpoint: Path) -> None:
        self._stored.put(checkpoint)
        try:
            self._stored.prune(self._num_kept, self._best())
        except StorageError as error:
            self._tell(f"Old checkpoints could not be removed from the storage. {error}")


def put_export(store: ObjectStore, run: str, folder: Path, tell: Callable[[str], None]) -> None:
    """Store what a run has exported; where that fails it is told, and the export is where it was."""
    try:
        put_folder(store, f"{stored_run(run)}/{EXPORT_FOLDER}", folder)
    except StorageError as error:
        tell(f"The export was not uploaded and stays in {folder}. {error}")


def stored_run(name: str) -> str:
    """The folder of a run in the storage."""
    return f"{RUNS_FOLDER}/{name}"
