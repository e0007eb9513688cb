"""The model on machines that do not see its folder: stored once by who starts the application, and fetched by its hash.

The code that is shipped to a cluster brings no assets along, so that this holds for the embedded checkpoint as well.
"""

from __future__ import annotations

from pathlib import Path

from backend.cluster.errors import ClusterError
from backend.cluster.sight import unseen_paths
from backend.serving.errors import naming_machine
from backend.serving.settings import EngineSettings
from training.errors import StorageDamaged
from training.model.hub.hub import find_local, resolve_model
from training.storage.objects import open_store
from training.stored_inputs import fetch_model, put_model


def share_model(settings: EngineSettings) -> EngineSettings:
    """The settings with which all machines of the connected cluster find the model; of the hub each downloads its own.

    Raises:
        ClusterError: a machine does not see the model's folder, and there is no storage.
        StorageError: it cannot be stored.
        ModelError: there is no such model.
    """
    folder = find_local(settings.model)
    if folder is None:
        return settings
    folder = folder.absolute()
    settings = settings.model_copy(update={"model_folder": folder})
    answers = unseen_paths([folder])
    if answers and not any(answers):
        return settings
    store = open_store(settings.storage)
    if store is not None:
        return settings.model_copy(update={"stored_model": put_model(store, folder)})
    if answers:
        raise ClusterError(
            f"Machines of the cluster do not see {folder}. Put it on storage that all machines share, or set "
            "ENCORE_STORAGE."
        )
    # They are yet to be started, and may see it then.
    return settings


def model_here(settings: EngineSettings) -> Path:
    """The model's folder on this machine: the one that was named, or a copy in this machine's cache.

    Raises:
        StorageError: it cannot be fetched.
        ModelError: it is neither here nor in the storage.
    """
    folder, store = settings.model_folder, open_store(settings.storage)
    if folder is not None and folder.is_dir():
        return folder
    if settings.stored_model is None or store is None:
        return resolve_model(settings.model)
    name = settings.stored_model
    with naming_machine():
        fetched = fetch_model(store, name)
    if fetched is None:
        raise StorageDamaged(f"The model {name} is missing at {store.location}. Start the application again.")
    return fetched
