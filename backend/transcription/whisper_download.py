"""Fetches Whisper weights: with progress in bytes, continued where it was cut off, and checked before it counts."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from backend.transcription.errors import WhisperUnavailable
from training.model.errors import DownloadCancelled
from training.model.hub.hub import DownloadProgress

if TYPE_CHECKING:
    # Private to the standard library's stubs.
    from hashlib import _Hash

_BLOCK_BYTES = 1 << 20
_ANSWER_WITHIN_SECONDS = 30.0
_REPORT_EVERY_SECONDS = 0.2
# So that a download does not leave a machine without any room to work.
_DISK_RESERVE_BYTES = 512 * 2**20
_NO_NETWORK_VARIABLES = ("HF_HUB_OFFLINE", "ENCORE_OFFLINE")
_RANGE_NOT_SATISFIABLE = 416
_PARTIAL_CONTENT = 206


def download_weights(
    address: str,
    path: Path,
    *,
    progress: Callable[[DownloadProgress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> None:
    """Fetch `address`, whose last folder is the SHA-256 of the file, to `path`.

    The file appears under its name only when it is complete and right.

    Raises:
        WhisperUnavailable: with the bare cause as its message, for `find_whisper` to put into a sentence.
        DownloadCancelled: `cancel` said so; what has arrived is kept for the next attempt.
    """
    if any(os.environ.get(variable, "").lower() in ("1", "true", "yes", "on") for variable in _NO_NETWORK_VARIABLES):
        raise WhisperUnavailable("downloads are switched off")
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock")):
            digest = _fetch(address, partial, progress or _ignore, cancel or _never)
            if digest != address.split("/")[-2]:
                partial.unlink()
                raise WhisperUnavailable("what arrived is not the published file; try again")
            partial.replace(path)
    except (OSError, http.client.HTTPException) as error:
        raise WhisperUnavailable(_explain(error)) from error


def _fetch(
    address: str, partial: Path, progress: Callable[[DownloadProgress], None], cancel: Callable[[], bool]
) -> str:
    """Complete the partial file; returns the hash of all of it."""
    digest, num_bytes = _hash_so_far(partial)
    request = urllib.request.Request(address, headers={"Range": f"bytes={num_bytes}-"} if num_bytes else {})
    try:
        answer = urllib.request.urlopen(request, timeout=_ANSWER_WITHIN_SECONDS)
    except urllib.error.HTTPError as error:
        # Nothing is left to fetch.
        if error.code == _RANGE_NOT_SATISFIABLE and num_bytes:
            return digest.hexdigest()
        raise
    with answer:
        if answer.status != _PARTIAL_CONTENT:
            digest, num_bytes = hashlib.sha256(), 0
        total = num_bytes + int(answer.headers.get("Content-Length") or 0)
        if total + _DISK_RESERVE_BYTES - num_bytes > shutil.disk_usage(partial.parent).free:
            raise WhisperUnavailable(f"it needs {total / 1e6:.0f} MB, and {partial.parent} has no room for it")
        with partial.open("ab" if num_bytes else "wb") as output:
            reported = 0.0
            # What is there already, not a whole block: on a slow line a cancel would wait for the rest of it.
            while block := answer.read1(_BLOCK_BYTES):
                output.write(block)
                digest.update(block)
                num_bytes += len(block)
                if time.monotonic() - reported > _REPORT_EVERY_SECONDS or num_bytes == total:
                    reported = time.monotonic()
                    progress(DownloadProgress(bytes_done=num_bytes, bytes_total=total, file=partial.stem))
                if cancel():
                    raise DownloadCancelled("The download was stopped. The next attempt continues it.")
            output.flush()
            os.fsync(output.fileno())
    if num_bytes < total:
        raise WhisperUnavailable("the connection broke off; the next attempt continues the download")
    return digest.hexdigest()


def _hash_so_far(partial: Path) -> tuple[_Hash, int]:
    """The hash, to be continued, and the length of what an earlier attempt has left."""
    digest, num_bytes = hashlib.sha256(), 0
    if partial.is_file():
        with partial.open("rb") as content:
            while block := content.read(_BLOCK_BYTES):
                digest.update(block)
                num_bytes += len(block)
    return digest, num_bytes


def _explain(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code}"
    if isinstance(error, urllib.error.URLError):
        return f"there is no connection ({error.reason})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "the connection broke off"


def _ignore(progress: DownloadProgress) -> None:
    """No progress is reported."""


def _never() -> bool:
    return False
