"""What is left of a build that came to nothing: no dataset that it created and that holds nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backend.background_tasks import TaskCancelled
from backend.errors import EncoreError
from backend.store.home import Home
from backend.store.trash import Trash

if TYPE_CHECKING:
    from backend.dataset.datasets import Datasets

_PATIENCE_SECONDS = 120.0
"""A process that builds has the dataset's lock until it has ended, a moment after it has said that it failed."""

_POLL_SECONDS = 0.1


@contextmanager
def removed_if_empty(home: Home, datasets: Datasets, name: str, *, even_cancelled: bool = False) -> Iterator[None]:
    """Build a dataset in the block; where that fails, one that was not there before goes again if nothing is in it.

    A build that was cancelled is resumed by the same command, and stays; `even_cancelled` is for names that nobody
    has chosen and the next build would not have. The end of its process is waited for. One whose process died by
    itself always stays, with what it has done.
    """
    existed = name in datasets.list()
    try:
        yield
    except EncoreError as error:
        was_stopped = isinstance(error, TaskCancelled)
        if not existed and _came_to_nothing(
            home, datasets, name, even_cancelled=even_cancelled, was_stopped=was_stopped
        ):
            _remove(home, datasets, name)
        raise


def _came_to_nothing(home: Home, datasets: Datasets, name: str, *, even_cancelled: bool, was_stopped: bool) -> bool:
    """Whether its build failed without a clip, or was cancelled where that counts as well."""
    from backend.dataset.clips.views import BuildState  # noqa: PLC0415 - seconds to load
    from backend.dataset.storage.lock import is_locked  # noqa: PLC0415 - seconds to load

    if name not in datasets.list():
        return False
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while even_cancelled and is_locked(home.folder, name) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    view = datasets.show(name)
    # A process that was told to stop may be gone before it could say that it has.
    is_cancelled = view.state is BuildState.CANCELLED or (was_stopped and view.state is BuildState.INTERRUPTED)
    if even_cancelled and is_cancelled:
        return True
    return view.state is BuildState.FAILED and not view.clips


def _remove(home: Home, datasets: Datasets, name: str) -> None:
    from backend.dataset.errors import DatasetBusy  # noqa: PLC0415 - seconds to load

    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            Trash(home).purge(datasets.delete(name).id, missing_ok=True)
        except DatasetBusy:
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_SECONDS)
        except EncoreError:
            # The user is to read why the build failed, not why its remains could not be removed.
            return
        else:
            return
