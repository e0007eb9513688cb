"""The child process of `hub.py`: fetches one model into the hub's cache, and resumes where an earlier one was stopped.

huggingface_hub finds names, sizes and hashes, does the transfers, and lays out its cache. Two things it does not do
(as of 2.4) are done here: a file that was cut off is continued instead of begun again, and what arrived is compared
with the hash the hub published. Called with a name and a revision (empty for the default); each line of standard
output is one event as JSON. It ends when its standard input closes, so it never outlives the program that started it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from filelock import FileLock
from huggingface_hub import HfApi, constants, hf_hub_url, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.hf_api import RepoSibling
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public, but not in __all__

# Everything a checkpoint consists of; never pickles (.bin, .pt) or code (.py).
ALLOWED_PATTERNS = ["*.safetensors", "*.json", "*.txt"]
REQUIRED_FILES = ("config.json", "speech_tokenizer/config.json", "speech_tokenizer/model.safetensors")

# So that a download does not leave a machine without any room to work.
DISK_RESERVE_BYTES = 512 * 2**20
# Without a limit, an endpoint that accepts connections and never answers would hold a download for ever.
_ANSWER_WITHIN_SECONDS = 30.0
_HASH_BLOCK_BYTES = 2**20
# The HTTP library's own base error; which library that is depends on the version of huggingface_hub.
_HTTP_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]


class FetchError(Exception):
    """A download that failed for a reason `hub.py` has a sentence for."""

    def __init__(self, reason: str, **facts: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.facts = facts


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file to fetch. The cache names content by its hash: SHA-256 of large files, git's SHA-1 of small ones."""

    name: str
    num_bytes: int
    digest: str
    blob: Path

    @property
    def partial(self) -> Path:
        """Where the bytes are collected; the name is the one huggingface_hub gave to its own partial files."""
        return self.blob.with_name(self.blob.name + ".incomplete")

    @property
    def num_bytes_here(self) -> int:
        """How much of it an earlier attempt has left, or all."""
        return self.num_bytes if self.blob.exists() else min(_size(self.partial), self.num_bytes)


def main() -> None:
    """Fetch the model named on the command line."""
    repo, revision = sys.argv[1:]
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        _tell("done", folder=str(fetch(repo, revision or None)))
    except FetchError as error:
        _tell("failed", reason=error.reason, **error.facts)
    except Exception as error:  # noqa: BLE001 - the process' edge: whatever it is must reach the parent as an event
        _tell("failed", **classify(error))


def fetch(repo: str, revision: str | None) -> Path:
    """Return the folder of a complete snapshot, downloading what is missing.

    Raises:
        FetchError: for reasons found here; what huggingface_hub raises is left to `classify`.
    """
    cached = find_cached(repo, revision)
    if cached is not None:
        return cached
    if constants.is_offline_mode():
        raise FetchError("offline")
    info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=_ANSWER_WITHIN_SECONDS)
    siblings = info.siblings or []
    _require_checkpoint([sibling.rfilename for sibling in siblings])
    blobs = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=repo, repo_type="model"), "blobs")
    files = list_files(siblings, blobs)
    _tell("plan", files=[{"bytes": f.num_bytes, "blob": str(f.blob), "partial": str(f.partial)} for f in files])
    _require_room(files, blobs)
    for file in files:
        _tell("file", name=file.name)
        _fetch_file(file, repo, str(info.sha))
    # Finds the blobs in place and links them up; whatever could not be planned for above is fetched by it as usual.
    return Path(snapshot_download(repo, revision=revision, allow_patterns=ALLOWED_PATTERNS))


def find_cached(repo: str, revision: str | None) -> Path | None:
    """Find a complete snapshot without asking the hub; one that is here is used as it is."""
    try:
        found = snapshot_download(repo, revision=revision, allow_patterns=ALLOWED_PATTERNS, local_files_only=True)
    except LocalEntryNotFoundError:
        return None
    # Snapshots of older versions of huggingface_hub come without a list of what should be in them.
    folder = Path(found)
    index = folder / "model.safetensors.index.json"
    weights = ["model.safetensors"]
    if index.is_file():
        weights = list(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
    return folder if all((folder / name).is_file() for name in (*REQUIRED_FILES, *weights)) else None


def list_files(siblings: Sequence[RepoSibling], blobs: Path) -> list[RemoteFile]:
    """Choose the files a checkpoint consists of, small ones first: a wrong model then shows before its weights come."""
    files = []
    for sibling in siblings:
        digest = (sibling.lfs.sha256 if sibling.lfs else sibling.blob_id) or ""
        # The digest becomes a file name, and comes from another machine.
        is_named_safely = re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", digest) is not None
        is_wanted = any(fnmatch(sibling.rfilename, pattern) for pattern in ALLOWED_PATTERNS)
        if is_wanted and is_named_safely and sibling.size is not None:
            blob = blobs / digest
            files.append(RemoteFile(name=sibling.rfilename, num_bytes=sibling.size, digest=digest, blob=blob))
    return sorted(files, key=lambda file: file.num_bytes)


def classify(error: Exception) -> dict[str, Any]:
    """Turn what went wrong into a reason, and the facts a sentence about it needs."""
    if isinstance(error, GatedRepoError):
        return {"reason": "gated"}
    if isinstance(error, RepositoryNotFoundError):
        return {"reason": "unknown_repo"}
    if isinstance(error, RevisionNotFoundError):
        return {"reason": "unknown_revision"}
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return {"reason": "rejected" if status in (401, 403) else "server_error", "status": status}
    if isinstance(error, _HTTP_ERROR | LocalEntryNotFoundError):
        return {"reason": "unreachable", "detail": _first_line(error)}
    if isinstance(error, OSError) and error.errno is not None:
        return {"reason": "disk", "detail": f"{error.strerror} ({error.filename or constants.HF_HUB_CACHE})"}
    return {"reason": "other", "detail": f"{type(error).__name__}: {_first_line(error)}"}


def _require_checkpoint(names: Sequence[str]) -> None:
    """Refuse a repository that is no checkpoint before gigabytes of it have been fetched."""
    missing = [name for name in REQUIRED_FILES if name not in names]
    if not any(re.fullmatch(r"model[^/]*\.safetensors", name) for name in names):
        missing.insert(0, "model.safetensors")
    if missing:
        raise FetchError("no_checkpoint", missing=missing)


def _require_room(files: Sequence[RemoteFile], blobs: Path) -> None:
    blobs.mkdir(parents=True, exist_ok=True)
    needed = sum(file.num_bytes - file.num_bytes_here for file in files)
    free = shutil.disk_usage(blobs).free
    if needed and needed + DISK_RESERVE_BYTES > free:
        raise FetchError("no_room", needed_bytes=needed + DISK_RESERVE_BYTES, free_bytes=free, folder=str(blobs))


def _fetch_file(file: RemoteFile, repo: str, commit: str) -> None:
    """Complete one blob. One that was continued and turns out wrong is fetched once more from its beginning."""
    # The lock huggingface_hub takes for this blob, so that two programs do not write into one partial file.
    lock = Path(constants.HF_HUB_CACHE, ".locks", file.blob.parent.parent.name, f"{file.digest}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        while not file.blob.exists():
            if _size(file.partial) > file.num_bytes:
                file.partial.unlink()
            resumed_from = _size(file.partial)
            _transfer(file, hf_hub_url(repo, file.name, revision=commit), resumed_from)
            if _hash_content(file) == file.digest:
                file.partial.replace(file.blob)
                return
            file.partial.unlink(missing_ok=True)
            if not resumed_from:
                raise FetchError("damaged", file=file.name)


def _transfer(file: RemoteFile, url: str, resumed_from: int) -> None:
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}  # ranges count bytes of the file, not of a gzip
    with file.partial.open("ab") as out:
        try:
            http_get(
                url,
                out,
                resume_size=resumed_from,
                headers=headers,
                expected_size=file.num_bytes,
                displayed_filename=file.name,
            )
        except OSError as error:
            # http_get's word for an answer of another length is an OSError without a number.
            if isinstance(error, HfHubHTTPError) or error.errno is not None:
                raise
        out.flush()
        os.fsync(out.fileno())


def _hash_content(file: RemoteFile) -> str:
    """Hash the partial file the way its digest was made."""
    if len(file.digest) == hashlib.sha256().digest_size * 2:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(b"blob %d\0" % file.num_bytes, usedforsecurity=False)
    with file.partial.open("rb") as content:
        while block := content.read(_HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def _exit_with_parent() -> None:
    sys.stdin.read()
    # Not sys.exit: the main thread is in a transfer that would have to end first.
    os._exit(1)


if __name__ == "__main__":
    main()
