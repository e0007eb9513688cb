"""A checkpoint by the hash of its weights, as a statement names it."""

from __future__ import annotations

import hashlib
import threading
from functools import lru_cache
from pathlib import Path

from training.model.checkpoint.names import ADAPTER_FILE
from training.model.checkpoint.reading import find_weights
from training.model.errors import CheckpointError

_MAX_REMEMBERED = 64
_hashing = threading.Lock()


def checkpoint_digest(folder: Path) -> str | None:
    """SHA-256 of a checkpoint's weights; None if there are none to read. Other files in its folder do not count.

    Of one file it is that file's own, which `sha256sum model.safetensors` and the pages of a hub show; of several
    that of the lines which `sha256sum *.safetensors` prints. Gigabytes take seconds the first time, then it is
    remembered until a file changes.
    """
    try:
        files = find_weights(folder)
        state = tuple((file, status.st_size, status.st_mtime_ns) for file in files for status in [file.stat()])
        # One at a time: the second who asks while a large one is being read gets it from memory.
        with _hashing:
            return _digest(state) if state else None
    except (OSError, CheckpointError):
        return None


def adapted_digest(base: Path, adapter: Path) -> str | None:
    """SHA-256 of a base model with an adapter; None if either has nothing to read.

    That of the two lines `HASH  base` and `HASH  adapter_model.safetensors`, with the hash of each.
    """
    file = adapter / ADAPTER_FILE
    try:
        status = file.stat()
        with _hashing:
            of_adapter = _digest(((file, status.st_size, status.st_mtime_ns),))
    except OSError:
        return None
    of_base = checkpoint_digest(base)
    if of_base is None:
        return None
    return hashlib.sha256(f"{of_base}  base\n{of_adapter}  {ADAPTER_FILE}\n".encode()).hexdigest()


@lru_cache(_MAX_REMEMBERED)
def _digest(state: tuple[tuple[Path, int, int], ...]) -> str:
    digests = []
    for path, _, _ in state:
        with path.open("rb") as file:
            digests.append((hashlib.file_digest(file, "sha256").hexdigest(), path.name))
    if len(digests) == 1:
        return digests[0][0]
    return hashlib.sha256("".join(f"{digest}  {name}\n" for digest, name in digests).encode()).hexdigest()
