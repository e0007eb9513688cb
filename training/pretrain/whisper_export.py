"""Writes a trained transcriber in openai-whisper's own format, for `whisper.load_model(path)`."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from training.pretrain.errors import PretrainError
from training.pretrain.whisper_job import ENGLISH_VOCABULARY, WhisperSize
from training.pretrain.whisper_network import BIAS_STATE, IMPOSSIBLE_BIAS, WhisperNetwork
from training.pretrain.whisper_spelling import Spelling

WHISPER_FILE = "whisper.pt"

ABOUT = (
    "A small transcriber for the synthetic English voices of Encore's embedded model (flite, espeak-ng). "
    "It is not for real recordings."
)


@torch.no_grad()
def export_whisper(path: Path, network: WhisperNetwork, spelling: Spelling, size: WhisperSize) -> None:
    """Write the network at half precision, with Whisper's whole English vocabulary: unused tokens are impossible."""
    tensors = {
        name: value.detach().cpu().half()
        for name, value in network.state_dict().items()
        if name.startswith(("encoder.", "decoder."))
    }
    table = "decoder.token_embedding.weight"
    tensors[table] = _full_table(tensors[table], spelling)
    content = {"dims": asdict(size.dimensions()), "model_state_dict": tensors, "about": ABOUT}
    plain = io.BytesIO()
    torch.save(content, plain)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    _deflate(plain, temporary)
    temporary.replace(path)


@torch.no_grad()
def read_whisper(path: Path, network: WhisperNetwork, spelling: Spelling) -> None:
    """Put the weights of an exported file into a network, to start from; the head for letters is not among them.

    Raises:
        PretrainError: the file is no transcriber of this size.
    """
    try:
        tensors = torch.load(path, weights_only=True, map_location="cpu")["model_state_dict"]
        table = "decoder.token_embedding.weight"
        tensors[table] = tensors[table][spelling.used]
        network.load_state_dict({**network.state_dict(), **tensors})
    except (OSError, RuntimeError, KeyError, UnpicklingError) as error:
        raise PretrainError(f"{path} is no transcriber to start from: {error}") from error


def _full_table(rows: Tensor, spelling: Spelling) -> Tensor:
    full = torch.zeros(ENGLISH_VOCABULARY, rows.shape[1], dtype=rows.dtype)
    full[:, BIAS_STATE] = IMPOSSIBLE_BIAS
    full[spelling.used] = rows
    return full


def _deflate(plain: io.BytesIO, path: Path) -> None:
    """Compress the archive that torch writes uncompressed: of 20 MB of tokens, all but a few hundred rows are alike.

    PyTorch reads compressed archives like any others, unless it is asked to map the file into memory.
    """
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for name in old.namelist():
            # A fixed date, so that the same weights make the same file.
            new.writestr(zipfile.ZipInfo(name), old.read(name), zipfile.ZIP_DEFLATED, 9)
