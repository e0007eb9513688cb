"""The child process of `hub.py`: downloads one model into the hub's cache, continuing an interrupted download.

huggingface_hub finds names, sizes and hashes, does the transfers, and lays out its cache. Two things it does not do
(as of 2.4) are done here: a partial file is continued instead of started again, and its content is compared with the
hash that the hub published. Arguments are a name and a revision (empty for the default). Each line of standard output
is a JSON object: the fields of `DownloadProgress` a few times a second (`{}` before the sizes are known), at the end
`{"folder": ...}` or `{"failed": ...}` with a sentence for the user. The process exits when its standard input closes,
so it never outlives the program that started it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

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

from training.model.errors import DownloadError
from training.model.hub.hub import EMBEDDED_FOLDER, EMBEDDED_MODEL, is_repo_name, list_choices

# Everything a checkpoint consists of; never pickles (.bin, .pt) or code (.py).
ALLOWED_PATTERNS = ["*.safetensors", "*.json", "*.txt"]
REQUIRED_FILES = ("config.json", "speech_tokenizer/config.json", "speech_tokenizer/model.safetensors")

# Kept free, so that a download does not fill the disk.
DISK_RESERVE_BYTES = 512 * 2**20
# Without a limit, an endpoint that accepts connections and never answers would block a download for ever.
_ANSWER_WITHIN_SECONDS = 30.0
_REPORT_SECONDS = 0.2
_HASH_BLOCK_BYTES = 2**20
# The HTTP library's own base error; which library that is depends on the version of huggingface_hub.
_HTTP_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file to download. The cache names content by its hash: SHA-256 of large files, git's SHA-1 of small ones."""

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
        """How much of it is on the disk."""
        return min(max(_size(self.blob), _size(self.partial)), self.num_bytes)


class Output:
    """Standard output, and what it reports: how much of the files is on the disk.

    Measured there, because progress bars of the hub's transfers are unreliable.
    """

    def __init__(self) -> None:
        self.files: Sequence[RemoteFile] = ()
        self.current = ""
        self._lock = threading.Lock()

    def write(self, result: Mapping[str, str] | None = None) -> None:
        """Write the progress, and the result if there is one; any thread may call it."""
        with self._lock:
            done, total = sum(f.num_bytes_here for f in self.files), sum(f.num_bytes for f in self.files)
            print(json.dumps({"bytes_done": done, "bytes_total": total, "file": self.current} if total else {}))
            if result is not None:
                print(json.dumps(result))
            sys.stdout.flush()

    def keep_reporting(self) -> None:
        """Write until the process ends, at least so often that the parent notices at once that it is to cancel."""
        while True:
            self.write()
            time.sleep(_REPORT_SECONDS)


def main() -> None:
    """Download the model named on the command line."""
    repo, revision = sys.argv[1:]
    output = Output()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    threading.Thread(target=output.keep_reporting, daemon=True).start()
    try:
        result = {"folder": str(download(repo, revision or None, output))}
    except Exception as error:  # noqa: BLE001 - the process' edge: every failure must reach the parent
        result = {"failed": str(error) if isinstance(error, DownloadError) else explain(repo, error)}
    output.write(result)


def download(repo: str, revision: str | None, output: Output) -> Path:
    """Return the folder of a complete snapshot, downloading what is missing.

    Raises:
        DownloadError: for reasons found here; what huggingface_hub raises is left to `explain`.
    """
    cached = find_cached(repo, revision)
    if cached is not None:
        return cached
    if constants.is_offline_mode():
        raise DownloadError(
            f"{repo} is not on this machine, and HF_HUB_OFFLINE forbids downloading it. {_by_hand(repo)}"
        )
    info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=_ANSWER_WITHIN_SECONDS)
    siblings = info.siblings or []
    _require_checkpoint(repo, [sibling.rfilename for sibling in siblings])
    blobs = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=repo, repo_type="model"), "blobs")
    files = list_files(siblings, blobs)
    _require_room(repo, files, blobs)
    output.files = files
    for file in files:
        output.current = file.name
        output.write()
        _download_file(file, repo, str(info.sha))
    # Links the blobs into a snapshot, and downloads any file that `list_files` left out.
    return Path(snapshot_download(repo, revision=revision, allow_patterns=ALLOWED_PATTERNS))


def find_installed(name: str) -> Path | None:
    """The folder of the embedded model or of a downloaded one; None for any other name, paths included.

    Nothing is downloaded and no folder of the name's choice is read, so that the name may be a stranger's.
    """
    if name == EMBEDDED_MODEL:
        return EMBEDDED_FOLDER if (EMBEDDED_FOLDER / "config.json").is_file() else None
    if not is_repo_name(name):
        return None
    return find_cached(name, None)


def find_cached(repo: str, revision: str | None) -> Path | None:
    """Find a complete snapshot without asking the hub; a cached one is used as it is."""
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
    """Choose a checkpoint's files, small ones first: a wrong model then shows before its weights are downloaded."""
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


def explain(repo: str, error: Exception) -> str:
    """A sentence for the user: what failed, and what to do about it."""
    if isinstance(error, GatedRepoError):
        return f"{repo} is gated: accept its terms on its hub page, then set HF_TOKEN to a token of that account."
    if isinstance(error, RepositoryNotFoundError):
        return f"The hub has no model {repo}, or it is private. {list_choices()}"
    if isinstance(error, RevisionNotFoundError):
        return f"{repo} has no such revision on the hub."
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 403):
            return f"The hub refused the request for {repo}. Check that the token in HF_TOKEN is valid, or unset it."
        return f"The hub failed while {repo} was downloaded (status {status}). Try again later."
    if isinstance(error, _HTTP_ERROR | LocalEntryNotFoundError):
        return f"{repo} is not on this machine, and the hub cannot be reached ({_first_line(error)}). {_by_hand(repo)}"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{repo} cannot be stored: {error.strerror} ({error.filename or constants.HF_HUB_CACHE})."
    return f"{repo} could not be downloaded: {type(error).__name__}: {_first_line(error)}."


def _by_hand(repo: str) -> str:
    return (
        f"To copy it by hand, run `hf download {repo} --local-dir FOLDER` on a machine with a network, copy FOLDER "
        "here (config.json, model.safetensors, the tokenizer files, speech_tokenizer/) and give its path as the model."
    )


def _require_checkpoint(repo: str, names: Sequence[str]) -> None:
    """Refuse a repository without a checkpoint before gigabytes of it have been downloaded."""
    missing = [name for name in REQUIRED_FILES if name not in names]
    if not any(re.fullmatch(r"model[^/]*\.safetensors", name) for name in names):
        missing.insert(0, "model.safetensors")
    if missing:
        raise DownloadError(f"{repo} is not a Qwen3-TTS model: it has no {' and no '.join(missing)}.")


def _require_room(repo: str, files: Sequence[RemoteFile], blobs: Path) -> None:
    blobs.mkdir(parents=True, exist_ok=True)
    missing = sum(file.num_bytes - file.num_bytes_here for file in files)
    needed, free = missing + DISK_RESERVE_BYTES, shutil.disk_usage(blobs).free
    if missing and needed > free:
        raise DownloadError(
            f"{repo} needs {needed / 1e9:.1f} GB more on the disk of {blobs}, where {free / 1e9:.1f} GB are free. "
            "Free some space, or set HF_HOME to a folder on a larger disk."
        )


def _download_file(file: RemoteFile, repo: str, commit: str) -> None:
    """Complete one blob. One that was continued and turns out wrong is downloaded once more from the start."""
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
                raise DownloadError(f"{file.name} of {repo} arrived damaged and was discarded. Try again.")


def _transfer(file: RemoteFile, url: str, resumed_from: int) -> None:
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}  # ranges count bytes of the file, not of a gzip
    with file.partial.open("ab") as out:
        try:
            http_get(url, out, resume_size=resumed_from, headers=headers, expected_size=file.num_bytes)
        except OSError as error:
            # For an answer of another length, http_get raises an OSError without a number.
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


def _exit_with_parent() -> None:
    sys.stdin.read()
    # Not sys.exit: the main thread is in a transfer that would have to end first.
    os._exit(1)


if __name__ == "__main__":
    main()
