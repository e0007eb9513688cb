"""From the name of a Whisper model to its weights: a file, Whisper's own cache, a download, or the embedded model."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import whisper

from backend.transcription.errors import WhisperDamaged, WhisperUnavailable
from backend.transcription.transcriber import EMBEDDED_TRANSCRIBER
from backend.transcription.whisper_download import download_weights
from training.model.hub.hub import EMBEDDED_FOLDER, EMBEDDED_MODEL, DownloadProgress

EMBEDDED_WEIGHTS = EMBEDDED_FOLDER / "whisper.pt"
# What the embedded model has been trained on: single sentences.
EMBEDDED_PIECE_SECONDS = 8.0
# Whisper fills thirty seconds with silence. The embedded model was mostly trained with so much after the last word:
# it hears better with that, and computes half as long.
EMBEDDED_SILENCE_SECONDS = 0.6
# Of the 30 seconds it could hear: with a full window it tends to stop before the end.
WHISPER_PIECE_SECONDS = 24.0

_HASH_BLOCK_BYTES = 1 << 20
_SUFFIX = ".pt"


@dataclass(frozen=True, kw_only=True)
class WhisperWeights:
    """A weights file that is here.

    Attributes:
        name: what the model is called in transcripts and on the page.
        published_name: under which openai-whisper knows it; None for files of one's own.
        silence_seconds: what it is to hear after the sound; None fills the window, as Whisper does.
        notice: something the person should know, such as that this is not the model that was asked for.
    """

    path: Path
    name: str
    published_name: str | None = None
    piece_seconds: float = WHISPER_PIECE_SECONDS
    silence_seconds: float | None = None
    notice: str | None = None


def find_whisper(
    name: str = "base",
    *,
    cache_folder: Path | None = None,
    embedded_path: Path = EMBEDDED_WEIGHTS,
    addresses: Mapping[str, str] | None = None,
    progress: Callable[[DownloadProgress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> WhisperWeights:
    """Find the weights of a Whisper model, downloading them if they are not here yet.

    Without a network the embedded model stands in for a published one, and the notice says so.

    Args:
        name: a published model (`base`, `large-v3`, ...), `mini` for the embedded one, or a file or folder.
        cache_folder: where downloads are kept; by default where openai-whisper keeps them.
        embedded_path: the embedded weights.
        addresses: of the published models, if not openai-whisper's own; the last folder is the SHA-256.
        progress: called a few times a second during a download.
        cancel: asked as often; when true the download stops, and the next call continues it.

    Raises:
        WhisperUnavailable: there are none, or no such model; the message says what to do.
        WhisperDamaged: a file in a folder of one's own is no weights file.
        DownloadCancelled: `cancel` said so.
    """
    if name == EMBEDDED_MODEL:
        if not embedded_path.is_file():
            raise WhisperUnavailable(
                f"The embedded transcriber is not part of this copy of Encore: {embedded_path} is missing. "
                f"Restore it, or use another model: {_list_names()}."
            )
        return _embedded(embedded_path)
    published = dict(addresses if addresses is not None else whisper._MODELS)
    if name not in published:
        return _find_own(name)
    folder = cache_folder or default_cache_folder()
    address = published[name]
    path = folder / address.rpartition("/")[2]
    if path.is_file() and hash_file(path) == address.split("/")[-2]:
        return WhisperWeights(path=path, name=f"whisper {name}", published_name=name)
    try:
        download_weights(address, path, progress=progress, cancel=cancel)
    except WhisperUnavailable as error:
        if not embedded_path.is_file():
            raise WhisperUnavailable(
                f"Whisper {name} is not here and cannot be downloaded: {error}. Put {path.name} into {folder}, "
                "give the path of a Whisper weights file, or bring transcripts along."
            ) from error
        return _embedded(
            embedded_path,
            notice=f"Whisper {name} is not here and cannot be downloaded, so the embedded transcriber listens. "
            f"It knows synthetic English voices only. For real recordings put {path.name} into {folder}.",
        )
    return WhisperWeights(path=path, name=f"whisper {name}", published_name=name)


def default_cache_folder() -> Path:
    """Where openai-whisper keeps its downloads."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "whisper")


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(_HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _embedded(path: Path, notice: str | None = None) -> WhisperWeights:
    return WhisperWeights(
        path=path,
        name=EMBEDDED_TRANSCRIBER,
        piece_seconds=EMBEDDED_PIECE_SECONDS,
        silence_seconds=EMBEDDED_SILENCE_SECONDS,
        notice=notice or "The embedded transcriber knows synthetic English voices only.",
    )


def _find_own(name: str) -> WhisperWeights:
    """Weights given by their path: a file, or a folder that holds one."""
    path = Path(os.path.expanduser(name))
    # os.path answers no where pathlib raises: names that are too long or hold a null byte.
    if os.path.isfile(path):
        return WhisperWeights(path=path, name=path.name)
    if name and os.path.isdir(path):
        files = sorted(each for each in path.iterdir() if each.suffix == _SUFFIX and each.is_file())
        if len(files) != 1:
            listed = ", ".join(each.name for each in files) or "none"
            raise WhisperDamaged(
                f"{path} should hold one Whisper weights file ({_SUFFIX}); it holds {listed}. Name the file."
            )
        return WhisperWeights(path=files[0], name=files[0].name)
    raise WhisperUnavailable(f"{name!r} is no Whisper model. Use {_list_names()}, or the path of a weights file.")


def _list_names() -> str:
    return "tiny, base, small, medium, large-v3 or turbo"
