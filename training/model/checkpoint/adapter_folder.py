"""Reads an adapter's folder as PEFT writes it, strictly, with one-line errors for damaged ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from training.model.checkpoint.names import ADAPTER_FILE
from training.model.checkpoint.reading import read_json_object
from training.model.checkpoint.stored_tensors import StoredTensor, open_safetensors
from training.model.checkpoint.writing import (
    ADAPTED_PREFIX,
    ADAPTER_CONFIG_FILE,
    BASE_DIGEST_KEY,
    PROVENANCE_FILE,
    ROWS,
    ROWS_TENSOR,
)
from training.model.errors import CheckpointError

_DIGEST_CHARACTERS = 64
# What this program does not compute; each changes the numbers if it is set.
_REFUSED = ("use_dora", "use_rslora", "fan_in_fan_out", "modules_to_save", "rank_pattern", "alpha_pattern", "lora_bias")


@dataclass(frozen=True, kw_only=True)
class AdapterHeader:
    """What is known of an adapter before its weights are read.

    Attributes:
        scale: factor of the product of its matrices.
        shapes: of its matrices, by the names that they have in the adapted talker.
        rows: of the codec vocabulary that it replaces.
        speakers: those rows by the name of the speaker.
        base_name: what others call the model that it belongs to, if it has a public name.
        base_digest: SHA-256 of that model's weights.
    """

    scale: float
    shapes: Mapping[str, tuple[int, ...]]
    rows: tuple[int, ...]
    speakers: Mapping[str, int]
    base_name: str | None
    base_digest: str | None


@dataclass(frozen=True, kw_only=True)
class StoredAdapter:
    """An adapter in memory, as it is stored, in float32.

    Attributes:
        header: what describes it.
        weights: its matrices by the names that they have in the adapted talker.
        rows: of the codec vocabulary that it replaces: index and embedding (D,).
    """

    header: AdapterHeader
    weights: Mapping[str, Tensor]
    rows: Mapping[int, Tensor]


def read_adapter_header(folder: Path) -> AdapterHeader:
    """Read what an adapter is, from its configuration and its file's header.

    Raises:
        CheckpointError: the folder is not an adapter's, is damaged, or asks for what is not computed here.
    """
    config = _read_object(folder / ADAPTER_CONFIG_FILE)
    refused = [name for name in _REFUSED if config.get(name)]
    if config.get("peft_type") != "LORA" or refused or config.get("bias", "none") != "none":
        raise CheckpointError(
            f"{folder} is not an adapter that can be used here: it is {str(config.get('peft_type'))[:40]} with "
            f"{', '.join(refused) or 'other settings'}. Only plain LoRA is."
        )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not _is_positive(rank) or not _is_positive(alpha):
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG_FILE}: r and lora_alpha must be numbers above 0. Get it again."
        )
    indices = config.get("trainable_token_indices") or {}
    rows = indices.get(ROWS, []) if isinstance(indices, dict) else None
    if not isinstance(rows, list) or not all(type(row) is int and row >= 0 for row in rows):
        raise CheckpointError(f"{folder / ADAPTER_CONFIG_FILE}: trainable_token_indices is not valid. Get it again.")
    shapes, digest = _read_shapes(folder / ADAPTER_FILE)
    name = config.get("base_model_name_or_path")
    return AdapterHeader(
        scale=float(cast(float, alpha)) / float(cast(float, rank)),
        shapes=shapes,
        rows=tuple(rows),
        speakers=_read_speakers(folder, rows),
        base_name=name[:200] if isinstance(name, str) and name else None,
        base_digest=digest,
    )


def read_adapter(folder: Path) -> StoredAdapter:
    """Read an adapter; its matrices are for `check_adapter_shapes` to compare with a talker's.

    Raises:
        CheckpointError: as `read_adapter_header`; or a value is NaN or infinite.
    """
    header, path = read_adapter_header(folder), folder / ADAPTER_FILE
    with open_safetensors(path) as file:
        weights = {name: StoredTensor(path, ADAPTED_PREFIX + name, file).read(torch.float32) for name in header.shapes}
        rows_RD = StoredTensor(path, ROWS_TENSOR, file).read(torch.float32) if header.rows else torch.zeros(0, 0)
    if rows_RD.ndim != 2 or len(rows_RD) != len(header.rows):
        raise CheckpointError(f"{path} has {len(rows_RD)} speakers instead of {len(header.rows)}. Get it again.")
    return StoredAdapter(header=header, weights=weights, rows=dict(zip(header.rows, rows_RD.unbind(), strict=True)))


def adapter_speakers(note: Mapping[str, Any]) -> dict[str, int]:
    """The speakers of an adapter and their rows of the codec vocabulary, as its `encore.json` names them."""
    rows = note.get("speakers")
    if isinstance(rows, dict) and rows:
        return {str(name): row for name, row in rows.items() if type(row) is int}
    row, name = note.get("speaker_row"), note.get("speaker")
    return {str(name): row} if type(row) is int and name else {}


def _read_speakers(folder: Path, rows: list[int]) -> dict[str, int]:
    """By the names in `encore.json`; an adapter that was made elsewhere has only numbers."""
    path = folder / PROVENANCE_FILE
    named = adapter_speakers(_read_object(path)) if path.is_file() else {}
    return {name: row for name, row in named.items() if row in rows} or {f"speaker-{row}": row for row in rows}


def _read_shapes(path: Path) -> tuple[dict[str, tuple[int, ...]], str | None]:
    """Shapes of the matrices by their names in the adapted talker, and the digest of the base model."""
    if not path.is_file():
        raise CheckpointError(f"{path.parent} is not an adapter: it has no {path.name}.")
    with open_safetensors(path) as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - not a mapping
    strays = [name for name in shapes if not name.startswith(ADAPTED_PREFIX) and name != ROWS_TENSOR]
    if strays or not shapes:
        raise CheckpointError(f"{path} holds {strays[0][:80] if strays else 'nothing'}, which no adapter has.")
    found = {name.removeprefix(ADAPTED_PREFIX): shape for name, shape in shapes.items() if name != ROWS_TENSOR}
    return found, _read_digest(path)


def _read_digest(path: Path) -> str | None:
    try:
        with safe_open(path, framework="pt", device="cpu", backend="pread") as file:
            digest = (file.metadata() or {}).get(BASE_DIGEST_KEY)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged: {error}. Get it again.") from error
    return digest if isinstance(digest, str) and len(digest) == _DIGEST_CHARACTERS else None


def _read_object(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path)
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid: {error}") from error


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
