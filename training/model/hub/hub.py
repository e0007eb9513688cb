"""Resolves the name of a model to its folder: the embedded checkpoint, a local folder, or a download.

Everything that talks to the hub runs in a child process (`download.py`): killing a process is the only way to stop a
transfer at once, and the child reads HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE as they are at the time of the
call, which huggingface_hub does only when it is imported.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from training.model.errors import CheckpointError, DownloadCancelled, DownloadError
from training.model.project import PROJECT_FOLDER

EMBEDDED_MODEL = "mini"
EMBEDDED_FOLDER = PROJECT_FOLDER / "assets" / "mini"

_REPO_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_MAX_REPO_NAME = 96
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|//|www\.|(huggingface\.co|hf\.co)(/|$)|git@")


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """A public checkpoint that is known to work; `num_bytes` is the approximate size of its download."""

    name: str
    num_bytes: int
    purpose: str


KNOWN_MODELS = (
    KnownModel(name="Qwen/Qwen3-TTS-12Hz-0.6B-Base", num_bytes=2_520_000_000, purpose="clones a voice; the smaller"),
    KnownModel(name="Qwen/Qwen3-TTS-12Hz-1.7B-Base", num_bytes=4_540_000_000, purpose="clones a voice; the better"),
    KnownModel(name="Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice", num_bytes=2_500_000_000, purpose="speaks in given voices"),
    KnownModel(name="Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", num_bytes=4_520_000_000, purpose="speaks in given voices"),
    KnownModel(name="Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign", num_bytes=4_520_000_000, purpose="speaks as described"),
)


@dataclass(frozen=True, kw_only=True)
class DownloadProgress:
    """Progress of a download. Bytes left by an earlier, interrupted one count as done; `file` is being downloaded."""

    bytes_done: int
    bytes_total: int
    file: str


def resolve_model(
    name: str,
    *,
    progress: Callable[[DownloadProgress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
    revision: str | None = None,
) -> Path:
    """Find the checkpoint folder of a model, downloading it if it is a hub model that is not here yet.

    Args:
        name: `mini`, a folder, or `owner/name` on the hub; a folder that exists comes before a hub model.
        progress: called a few times a second during a download, from the calling thread.
        cancel: polled as often; when true the download stops, and the next call continues it.
        revision: of a hub model: branch, tag or commit. A model that is cached is used as it is.

    Raises:
        CheckpointError: the embedded checkpoint or the folder does not exist.
        DownloadError: the name is invalid, or the model cannot be downloaded; the message says what to do.
        DownloadCancelled: `cancel` returned true.
    """
    found = find_local(name)
    return found or _download(name, revision, progress or (lambda _: None), cancel or (lambda: False))


def find_local(name: str) -> Path | None:
    """The checkpoint folder of a model that needs no download; None for a name on the hub, here already or not.

    Raises:
        CheckpointError: the embedded checkpoint or the folder does not exist.
        DownloadError: it can be no model's name.
    """
    if name == EMBEDDED_MODEL:
        return _find_embedded()
    if _URL.match(name):
        raise DownloadError(f"{name!r} looks like an address. {list_choices()}")
    # os.path returns False where pathlib raises: names that are too long, contain a null byte, or name an unknown user.
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):
        return Path(folder)
    if os.path.isfile(folder):
        raise CheckpointError(f"{name} is a file; a model is given by its checkpoint folder.")
    if _is_path(name):
        raise CheckpointError(f"There is no folder {name}.")
    if not is_repo_name(name):
        raise DownloadError(f"{name!r} is not a model. {list_choices()}")
    return None


def _find_embedded() -> Path:
    if not (EMBEDDED_FOLDER / "config.json").is_file():
        raise CheckpointError(
            f"The embedded model is not part of this copy of Encore: {EMBEDDED_FOLDER} has no checkpoint. "
            f"Restore that folder, or use another model. {list_choices()}"
        )
    return EMBEDDED_FOLDER


def published_name(folder: Path) -> str | None:
    """The name that others know a model by, from its folder; None if it is only on this machine."""
    if folder == EMBEDDED_FOLDER:
        return EMBEDDED_MODEL
    # As the hub's cache names it: models--OWNER--NAME/snapshots/REVISION.
    cached = folder.parent.parent.name.split("--", 2)
    name = "/".join(cached[1:])
    return name if folder.parent.name == "snapshots" and cached[0] == "models" and is_repo_name(name) else None


def short_name(name: str) -> str:
    """What a model is called in passing, and to clients: a folder by its own name, without where it lies."""
    folder = os.path.expanduser(name)
    if name == EMBEDDED_MODEL or not (_is_path(name) or os.path.isdir(folder)):
        return name
    folder = os.path.abspath(folder)
    return published_name(Path(folder)) or re.split(r"[/\\]", folder)[-1] or name


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def is_repo_name(name: str) -> bool:
    """Whether a name has the form of a hub model's."""
    return bool(_REPO_NAME.fullmatch(name)) and "--" not in name and ".." not in name and len(name) <= _MAX_REPO_NAME


def list_choices() -> str:
    """A sentence about what a model's name may be."""
    names = " or ".join(model.name for model in KNOWN_MODELS if model.name.endswith("-Base"))
    return f"A model is {EMBEDDED_MODEL} (the embedded one), a checkpoint folder, or a hub name such as {names}."


def _download(
    repo: str, revision: str | None, progress: Callable[[DownloadProgress], None], cancel: Callable[[], bool]
) -> Path:
    """Run the child process until it is done, and pass its progress on."""
    command = [sys.executable, "-m", "training.model.hub.download", repo, revision or ""]
    paths = [str(PROJECT_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment = {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(paths)}
    last: DownloadProgress | None = None
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, encoding="utf-8"
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                if cancel():
                    raise DownloadCancelled(f"The download of {repo} was stopped. What has arrived is kept.")
                match json.loads(line):
                    case {"folder": folder}:
                        return Path(folder)
                    case {"failed": reason}:
                        raise DownloadError(reason)
                    case {"bytes_total": _} as fields:
                        now = DownloadProgress(**fields)
                        if now != last:
                            progress(now)
                        last = now
        finally:
            child.kill()
        child.wait()
        raise DownloadError(f"The download of {repo} ended unexpectedly: {_last_line(log)}. Try again.")


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "its process was killed"
