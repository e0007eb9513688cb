"""From the name of a Whisper model to its weights: a file, Whisper's own cache, or a download."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import whisper

from backend.transcription.catalogue import DEFAULT_WHISPER, cache_folder, not_a_whisper
from backend.transcription.errors import WhisperDamaged, WhisperUnavailable
from backend.transcription.transcriber import WhisperWeights
from backend.transcription.whisper_download import download_weights
from training.model.hub.hub import DownloadProgress

_HASH_BLOCK_BYTES = 1 << 20
_SUFFIX = ".pt"


def find_whisper(
    name: str = DEFAULT_WHISPER,
    *,
    folder: Path | None = None,
    addresses: Mapping[str, str] | None = None,
    progress: Callable[[DownloadProgress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> WhisperWeights:
    """Find the weights of a Whisper model, downloading them if they are not here yet.

    Args:
        name: a published model (`base`, `large-v3`, ...), or a file or folder.
        folder: where downloads are kept; by default where openai-whisper keeps them.
        addresses: of the published models, if not openai-whisper's own; the last folder is the SHA-256.
        progress: called a few times a second during a download.
        cancel: asked as often; when true the download stops, and the next call continues it.

    Raises:
        WhisperUnavailable: the weights or the model do not exist; the message says what to do.
        WhisperDamaged: the user's folder does not hold exactly one weights file.
        DownloadCancelled: `cancel` said so.
    """
    published = dict(addresses if addresses is not None else whisper._MODELS)
    if name not in published:
        return _find_own(name)
    folder = folder or cache_folder()
    address = published[name]
    path, digest = folder / address.rpartition("/")[2], address.split("/")[-2]
    found = WhisperWeights(path=path, name=f"whisper {name}", identity=digest, published_name=name)
    if path.is_file() and hash_file(path) == digest:
        return found
    try:
        download_weights(address, path, progress=progress, cancel=cancel)
    except WhisperUnavailable as error:
        raise WhisperUnavailable(
            f"Whisper {name} is not here and cannot be downloaded: {error}. Put {path.name} into {folder}, "
            "give the path of a Whisper weights file, or bring transcripts along."
        ) from error
    return found


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(_HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _find_own(name: str) -> WhisperWeights:
    """Weights given by their path: a file, or a folder that holds one."""
    path = Path(os.path.expanduser(name))
    # os.path answers no where pathlib raises: names that are too long or hold a null byte.
    if os.path.isfile(path):
        return WhisperWeights(path=path.absolute(), name=path.name, identity=hash_file(path))
    if name and os.path.isdir(path):
        files = sorted(each for each in path.iterdir() if each.suffix == _SUFFIX and each.is_file())
        if len(files) != 1:
            listed = ", ".join(each.name for each in files) or "none"
            raise WhisperDamaged(
                f"{path} should hold one Whisper weights file ({_SUFFIX}); it holds {listed}. Name the file."
            )
        return WhisperWeights(path=files[0].absolute(), name=files[0].name, identity=hash_file(files[0]))
    raise not_a_whisper(name)
