"""From the name of a model to its folder: the embedded checkpoint, a folder on this machine, or a download.

Everything that talks to the hub runs in a child process (`hub_download.py`): ending a process is the one way to stop
a transfer at once, and the child reads HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE as they are at the time of
the call, which huggingface_hub does only when it is imported.
"""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from training.model.errors import CheckpointError, DownloadCancelled, DownloadError
from training.model.project import PROJECT_FOLDER

EMBEDDED_MODEL = "mini"
EMBEDDED_FOLDER = PROJECT_FOLDER / "assets" / "mini"

_POLL_SECONDS = 0.2
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
    """How far a download is. What an earlier, interrupted one left counts as done; `file` is being fetched."""

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
        cancel: asked as often; when true the download stops at once, and the next call continues it.
        revision: of a hub model: branch, tag or commit. A model that is here already is used as it is.

    Raises:
        CheckpointError: the embedded checkpoint or the folder is not there.
        DownloadError: the name makes no sense, or the model cannot be had; the message says what to do.
        DownloadCancelled: `cancel` said so.
    """
    if name == EMBEDDED_MODEL:
        return _find_embedded()
    if _URL.match(name):
        raise DownloadError(f"{name!r} looks like an address. {_list_choices()}")
    # os.path answers no where pathlib raises: names that are too long, hold a null byte, or name an unknown user.
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):
        return Path(folder)
    if os.path.isfile(folder):
        raise CheckpointError(f"{name} is a file; a model is given by its checkpoint folder.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise CheckpointError(f"There is no folder {name}.")
    if not _REPO_NAME.fullmatch(name) or "--" in name or ".." in name or len(name) > _MAX_REPO_NAME:
        raise DownloadError(f"{name!r} is no model. {_list_choices()}")
    return _download(name, revision, progress or _ignore, cancel or _never)


def _find_embedded() -> Path:
    if not (EMBEDDED_FOLDER / "config.json").is_file():
        raise CheckpointError(
            f"The embedded model is not part of this copy of Encore: {EMBEDDED_FOLDER} has no checkpoint. "
            f"Restore that folder, or use another model. {_list_choices()}"
        )
    return EMBEDDED_FOLDER


def _list_choices() -> str:
    names = " or ".join(model.name for model in KNOWN_MODELS if model.name.endswith("-Base"))
    return f"A model is {EMBEDDED_MODEL} (the embedded one), a checkpoint folder, or a hub name such as {names}."


def _download(
    repo: str, revision: str | None, progress: Callable[[DownloadProgress], None], cancel: Callable[[], bool]
) -> Path:
    """Run the child until it is done, and report what it says and what grows on the disk."""
    plan: list[Mapping[str, Any]] = []
    last: DownloadProgress | None = None
    file = ""
    with tempfile.TemporaryFile() as log, _run_child(repo, revision, log) as events:
        for event in events:
            if cancel():
                raise DownloadCancelled(f"The download of {repo} was stopped. What has arrived is kept.")
            match event.get("event"):
                case "plan":
                    plan = event["files"]
                case "file":
                    file = event["name"]
                case "failed":
                    raise DownloadError(_explain(repo, event))
            last = _report(plan, file, last, progress)
            if event.get("event") == "done":
                return Path(event["folder"])
        raise DownloadError(f"The download of {repo} ended unexpectedly: {_last_line(log)}. Try again.")


@contextmanager
def _run_child(repo: str, revision: str | None, log: IO[bytes]) -> Iterator[Iterator[Mapping[str, Any]]]:
    """Start the child and give its events, an empty one whenever none came for a moment; kill it at the end."""
    paths = [str(PROJECT_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment = {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "training.model.hub.download", repo, revision or ""]
    lines: queue.Queue[str] = queue.Queue()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, encoding="utf-8"
    ) as child:
        reader = threading.Thread(target=_forward_lines, args=(child.stdout, lines), daemon=True)
        reader.start()
        try:
            yield _read_events(lines)
        finally:
            child.kill()
            reader.join()


def _forward_lines(source: IO[str], lines: queue.Queue[str]) -> None:
    for line in source:
        lines.put(line)
    lines.put("")


def _read_events(lines: queue.Queue[str]) -> Iterator[Mapping[str, Any]]:
    while True:
        try:
            line = lines.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            yield {}
            continue
        if not line:
            return
        yield json.loads(line)


def _report(
    plan: list[Mapping[str, Any]],
    file: str,
    last: DownloadProgress | None,
    progress: Callable[[DownloadProgress], None],
) -> DownloadProgress | None:
    """Measure the files on the disk and report what changed. (Progress bars of the hub's transfers are unreliable.)"""
    if not plan or not file:
        return last
    done = sum(min(each["bytes"], max(_size(each["blob"]), _size(each["partial"]))) for each in plan)
    now = DownloadProgress(bytes_done=done, bytes_total=sum(each["bytes"] for each in plan), file=file)
    if now != last:
        progress(now)
    return now


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _explain(repo: str, event: Mapping[str, Any]) -> str:
    """Say in plain words why the child failed, and what can be done."""
    by_hand = (
        f"To bring it by hand, run `hf download {repo} --local-dir FOLDER` where there is a network, copy FOLDER here "
        "(config.json, model.safetensors, the tokenizer files, speech_tokenizer/) and give its path as the model."
    )
    detail = event.get("detail", "")
    sentences = {
        "offline": f"{repo} is not on this machine, and HF_HUB_OFFLINE forbids to download it. {by_hand}",
        "unreachable": f"{repo} is not on this machine, and the hub cannot be reached ({detail}). {by_hand}",
        "unknown_repo": f"The hub has no model {repo}, or it is private. {_list_choices()}",
        "unknown_revision": f"{repo} has no such revision on the hub.",
        "gated": f"{repo} is gated: accept its terms on its hub page, then set HF_TOKEN to a token of that account.",
        "rejected": f"The hub refused the request for {repo}. Check that the token in HF_TOKEN is valid, or unset it.",
        "server_error": f"The hub failed while {repo} was fetched (status {event.get('status')}). Try again later.",
        "damaged": f"{event.get('file')} of {repo} arrived damaged and was thrown away. Try again.",
        "no_checkpoint": f"{repo} is no Qwen3-TTS model: it has no {' and no '.join(event.get('missing', []))}.",
        "disk": f"{repo} cannot be stored: {detail}.",
    }
    if event.get("reason") == "no_room":
        needed, free = (f"{event[key] / 1e9:.1f} GB" for key in ("needed_bytes", "free_bytes"))
        return (
            f"{repo} needs {needed} more on the disk of {event['folder']}, where {free} are free. "
            "Free some space, or set HF_HOME to a folder on a larger disk."
        )
    return sentences.get(str(event.get("reason")), f"{repo} could not be downloaded: {detail}.")


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "its process was killed"


def _ignore(_: DownloadProgress) -> None:
    """Report to nobody."""


def _never() -> bool:
    return False
