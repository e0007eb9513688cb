"""What a build and the machines of its cluster hand each other through the object storage, if some see no home.

The machine of the build stores recordings, models and what earlier builds have done, and brings home what others make.
"""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ray.exceptions import RayError

from backend.cluster.errors import ClusterError
from backend.cluster.sight import on_every_machine, unseen_paths
from backend.dataset.build.context import WEIGHTS_SUFFIX, BuildContext
from backend.dataset.build.heartbeat import BuildHeartbeat
from backend.dataset.sources.find import SourceRecording
from backend.dataset.storage.stored_builds import bring_home, remove_abandoned, settle
from backend.dataset.storage.stored_workspace import BUILDS_FOLDER, FILES_FOLDER, StoredBuild, folder_here
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.transcription.select_transcriber import TranscriberSource
from backend.voices.voice_index import owner_of
from training.model.owner import working_name
from training.storage.folders import in_parallel
from training.storage.objects import ObjectStore
from training.stored_inputs import put_model

_PROOF_FOLDER = "cache/unpacked"
"""Swept at start, should the process that has made a proof be killed."""

_SENDING = "What the machines of the cluster need for this build is being sent to the storage."


class BuildExchange:
    """A build's place in the storage, as the machine that has the home uses it."""

    def __init__(
        self, store: ObjectStore, stored: StoredBuild, context: BuildContext, heartbeat: BuildHeartbeat
    ) -> None:
        self.context_there = replace(context, stored=stored)
        self._store, self._stored, self._context, self._heartbeat = store, stored, context, heartbeat
        self._workspace = DatasetWorkspace(context.home)

    @contextmanager
    def carry(self, sources: Sequence[SourceRecording]) -> Iterator[None]:
        """For the block of a pass over these recordings: store what it needs, and bring home what it has made.

        Raises:
            StorageError: the storage cannot be used, or a recording changed.
            ArtifactError: the disk of the home is full.
            BuildCancelled: the build was asked to stop before everything was stored.
        """
        there = self._store.sizes(self._stored.name)
        by_id = {source.recording_id: source for source in sources}

        def send(recording_id: str) -> None:
            if self._heartbeat.is_cancelled:
                self._heartbeat.stop_if_cancelled()
            self._send(by_id[recording_id], there.keys())

        with self._heartbeat.noting(_SENDING):
            in_parallel(send, by_id)
            if self._context.verifier_id:
                self._put(self._context.verifier_id, WEIGHTS_SUFFIX, there.keys())
        try:
            yield
        finally:
            bring_home(self._store, self._stored, self._workspace)

    def _send(self, source: SourceRecording, there: Container[str]) -> None:
        """Store a recording, or what has been done for it already."""
        is_decoded = False
        for stage, key, result in self._context.finished(source):
            is_decoded = True
            if self._stored.result(stage, key).removeprefix(f"{self._stored.name}/") in there:
                continue
            # Nobody there reads the codes of a clip.
            for digest, suffix in result.artifacts if stage != "tokenize" else ():
                self._put(digest, suffix, there)
            self._stored.put_result(self._store, stage, key, result)
        if not is_decoded:
            self._put(source.recording_id, Path(source.path).suffix, there, Path(source.path))

    def _put(self, digest: str, suffix: str, there: Container[str], file: Path | None = None) -> None:
        if f"{FILES_FOLDER}/{digest}{suffix}" not in there:
            path = file or self._workspace.file(digest, suffix)
            self._stored.put_file(self._store, path, digest, suffix)


@contextmanager
def open_exchange(
    store: ObjectStore | None, sources: Sequence[SourceRecording], context: BuildContext, heartbeat: BuildHeartbeat
) -> Iterator[BuildExchange | None]:
    """For a block on the connected cluster, the exchange that a build needs there; None where all see what it reads.

    Raises:
        ClusterError: a machine does not, and there is no storage.
        StorageError: the storage cannot be used.
    """
    proof = context.home / _PROOF_FOLDER / working_name(".proof")
    proof.parent.mkdir(parents=True, exist_ok=True)
    proof.touch()
    try:
        unseen = _unseen(proof, sources, context)
        if not unseen:
            yield None
            return
        if store is None:
            missing = next(iter(unseen))
            raise ClusterError(
                f"Machines of the cluster do not see {context.home if missing == proof else missing}. Put it on "
                "storage that all machines share, or set ENCORE_STORAGE."
            )
        remove_abandoned(store, context.home)
        with stored_build(store, proof, unseen, context, heartbeat) as stored:
            try:
                yield BuildExchange(store, stored, context, heartbeat)
            finally:
                with suppress(RayError):
                    on_every_machine(_forget, stored)
    finally:
        proof.unlink(missing_ok=True)


def _unseen(proof: Path, sources: Sequence[SourceRecording], context: BuildContext) -> dict[Path, None]:
    """What some machine does not see of what the stages read, the home first."""
    needed = {proof: None, context.model_folder: None}
    if isinstance(context.transcriber, TranscriberSource):
        needed[context.transcriber.path] = None
    needed |= dict.fromkeys(Path(source.path).parent for source in sources if context.lookup_decoded(source) is None)
    missing = {path for paths in unseen_paths(list(needed)) for path in paths}
    return {path: None for path in needed if path in missing}


@contextmanager
def stored_build(
    store: ObjectStore, proof: Path, unseen: Container[Path], context: BuildContext, heartbeat: BuildHeartbeat
) -> Iterator[StoredBuild]:
    """A place in the storage for a block, with what is `unseen` of the models.

    What a build that was killed has left there comes home first. Raises StorageError.
    """
    stored = StoredBuild(
        location=store.location, name=f"{BUILDS_FOLDER}/{owner_of(context.home)}/{context.job.name}", proof=proof
    )
    store.require()
    try:
        store.write(stored.begun, b"")
        bring_home(store, stored, DatasetWorkspace(context.home))
        source = context.transcriber
        whisper = source.path if isinstance(source, TranscriberSource) else None
        with heartbeat.noting(_SENDING):
            found = replace(
                stored,
                model=put_model(store, context.model_folder) if context.model_folder in unseen else None,
                transcriber=put_model(store, whisper.parent, [whisper.name]) if whisper and whisper in unseen else None,
            )
        yield found
    finally:
        settle(store, stored, context.home)


def _forget(stored: StoredBuild) -> None:
    shutil.rmtree(folder_here(stored), ignore_errors=True)
