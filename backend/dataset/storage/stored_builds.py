"""What builds have put into the object storage comes home and is removed, also where a build was killed."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from backend.dataset.clips.stage_counts import STAGES, Stage
from backend.dataset.clips.stage_results import (
    CutRecording,
    DecodedRecording,
    HeardPiece,
    StageResult,
    TokenizedClip,
)
from backend.dataset.errors import DatasetBusy
from backend.dataset.storage.lock import dataset_lock
from backend.dataset.storage.stored_workspace import BUILDS_FOLDER, StoredBuild
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.errors import EncoreError
from backend.store.keeping import keep_alike
from backend.voices.voice_index import owner_of
from training.storage.folders import in_parallel
from training.storage.objects import ObjectStore

_KINDS: dict[Stage, type[StageResult]] = {
    "decode": DecodedRecording,
    "transcribe": HeardPiece,
    "cut": CutRecording,
    "tokenize": TokenizedClip,
}
_LOOK_SECONDS = 600.0
_logger = logging.getLogger(__name__)


def settle(store: ObjectStore, stored: StoredBuild, home: Path) -> None:
    """Remove a build that has ended from the storage, once all that it has made is at home."""
    try:
        bring_home(store, stored, DatasetWorkspace(home))
        store.delete_below(stored.name)
    except EncoreError as error:
        # The build's own outcome says more; this is done again by the next one, and by the studio.
        _logger.warning("What was stored for the build at %s is still there. %s", stored.name, error)


def bring_home(store: ObjectStore, stored: StoredBuild, workspace: DatasetWorkspace) -> None:
    """Fetch all results that the home lacks, with their files.

    Raises:
        StorageError: the storage cannot be used.
        ArtifactError: the disk is full.
    """

    def bring(name: str) -> None:
        stage_name, _, file = name.partition("/")
        stage, key = next((stage for stage in STAGES if stage == stage_name), None), file.removesuffix(".json")
        if stage is None or workspace.cache.lookup(stage, key, _KINDS[stage]) is not None:
            return
        content = store.read(stored.result(stage, key))
        try:
            result = _KINDS[stage].model_validate_json(content or b"")
        except ValidationError:
            return  # of another version of Encore
        for digest, suffix in result.artifacts:
            stored.fetch_artifact(store, workspace.artifacts, digest, suffix)
        workspace.cache.save(stage, key, result)

    in_parallel(bring, store.sizes(stored.results))


def remove_abandoned(store: ObjectStore, home: Path) -> None:
    """Bring home what builds of a home have made that were killed, and remove it from the storage.

    Raises:
        StorageError: the storage cannot be read.
    """
    owner = f"{BUILDS_FOLDER}/{owner_of(home)}"
    for name in {path.partition("/")[0] for path in store.sizes(owner)}:
        with suppress(DatasetBusy), dataset_lock(home, name):
            settle(store, StoredBuild(location=store.location, name=f"{owner}/{name}", proof=home), home)


def keep_removing_abandoned(store: ObjectStore, home: Path) -> None:
    """Do it every few minutes in a thread of its own."""

    def remove() -> bool:
        remove_abandoned(store, home)
        return True

    keep_alike(
        "abandoned builds",
        remove,
        "What builds have left in the storage could not be looked for; that is tried again",
        look_seconds=_LOOK_SECONDS,
        again_seconds=_LOOK_SECONDS,
    )
