"""What runs learn from and clusters speak with, in the object storage, from where machines that lack it fetch it.

runs/NAME/datasets/DIGEST    rows and card of a dataset, by the digest that jobs name; no sound
runs/NAME/speech/SHA256      a checkpoint that was spoken with where its folder is not seen
models/SHA256                a base model's folder, or one file of weights, by the hash of its files' hashes
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from training.data.code_rows import CARD_FILE, ROWS_FILE
from training.errors import PreflightError
from training.job import FineTuneJob, JobSpeaker
from training.storage.folders import Manifest, describe, get_folder, put_folder, read_manifest
from training.storage.objects import ObjectStore
from training.stored_checkpoints import stored_run

DATASETS_FOLDER, MODELS_FOLDER, SPEECH_FOLDER = "datasets", "models", "speech"


def put_datasets(store: ObjectStore, run: str, job: FineTuneJob) -> None:
    """Store the rows that a job learns from, unless they are stored. Raises StorageError."""
    for speaker in job.speakers:
        name = _dataset(run, speaker)
        if read_manifest(store, name) is None:
            put_folder(store, name, speaker.dataset, describe(speaker.dataset, [CARD_FILE, ROWS_FILE]))


def delete_datasets(store: ObjectStore, run: str) -> None:
    """Remove what `put_datasets` stored: a run that is done needs it no more. Raises StorageError."""
    store.delete_below(f"{stored_run(run)}/{DATASETS_FOLDER}")


def put_model(store: ObjectStore, folder: Path, files: Sequence[str] | None = None) -> str:
    """Store a base model, unless it is stored, and return its name for `fetch_model`; of a folder all, or some `files`.

    Raises:
        StorageError: it cannot be stored.
    """
    return _put_by_hash(store, MODELS_FOLDER, folder, describe(folder, files))


def put_checkpoint(store: ObjectStore, folder: Path, run: str | None) -> str:
    """Store a checkpoint that is spoken with, unless it is stored, and return its name for `fetch_folder`.

    Args:
        store: where to.
        folder: the checkpoint; all of its files.
        run: whose export it is: it goes with the run. None for a base model.

    Raises:
        StorageError: it cannot be stored.
    """
    parent = MODELS_FOLDER if run is None else f"{stored_run(run)}/{SPEECH_FOLDER}"
    return f"{parent}/{_put_by_hash(store, parent, folder, describe(folder))}"


def _put_by_hash(store: ObjectStore, parent: str, folder: Path, manifest: Manifest) -> str:
    name = hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()
    if read_manifest(store, f"{parent}/{name}") is None:
        put_folder(store, f"{parent}/{name}", folder, manifest)
    return name


@contextmanager
def datasets_here(job: FineTuneJob, store: ObjectStore) -> Iterator[FineTuneJob]:
    """For a block, the job with datasets of this machine: its own, or copies that are gone afterwards.

    Raises:
        PreflightError: one is neither here nor stored.
        StorageError: one cannot be fetched.
    """
    with tempfile.TemporaryDirectory(prefix="encore-work.") as copies:
        folders = [_fetch(speaker, store, job.output.name, Path(copies)) for speaker in job.speakers]
        yield job.with_datasets(folders)


def with_model_here(job: FineTuneJob, store: ObjectStore, model: str | None) -> FineTuneJob:
    """The job with a base model of this machine: its own, or a copy in this machine's cache.

    Args:
        job: as it was planned, perhaps elsewhere.
        store: has what is missing.
        model: the base model's name in the storage, if it is there.

    Raises:
        PreflightError: it is not what is stored under that name.
        StorageError: it cannot be fetched.
    """
    if job.base_model.is_dir() or model is None:
        return job
    cached = fetch_model(store, model)
    if cached is None:
        raise PreflightError(
            f"The base model {job.base_model} is neither on this machine nor in the storage. Resume the run."
        )
    return job.model_copy(update={"base_model": cached})


def fetch_model(store: ObjectStore, model: str) -> Path | None:
    """What `put_model` has stored, in this machine's cache; None where it is not stored. Raises StorageError."""
    return fetch_folder(store, f"{MODELS_FOLDER}/{model}")


def fetch_folder(store: ObjectStore, name: str) -> Path | None:
    """A stored folder in this machine's cache; None where it is not stored. Raises StorageError."""
    cached = cache_folder() / name
    return None if get_folder(store, name, cached) is None else cached


def own_output(run: str) -> Path:
    """Where a machine has its part of a run's checkpoints until it is stored; never another machine's."""
    return cache_folder() / "runs" / socket.gethostname() / run


def cache_folder() -> Path:
    """Where a machine keeps what it has fetched; may be removed whenever nothing runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "encore" / "storage"


def _fetch(speaker: JobSpeaker, store: ObjectStore, run: str, copies: Path) -> Path:
    if speaker.dataset.is_dir():
        return speaker.dataset
    copy = copies / speaker.dataset_digest
    if get_folder(store, _dataset(run, speaker), copy) is None:
        raise PreflightError(
            f"The dataset {speaker.dataset} is neither on this machine nor in the storage. Resume the run, or copy it "
            "here."
        )
    return copy


def _dataset(run: str, speaker: JobSpeaker) -> str:
    return f"{stored_run(run)}/{DATASETS_FOLDER}/{speaker.dataset_digest}"
