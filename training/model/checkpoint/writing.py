"""Writes checkpoint folders that this program and the reference package can load."""

from __future__ import annotations

import errno
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from training.model.checkpoint.atomic_folder import create_folder
from training.model.checkpoint.config_file import model_config_to_json, speech_tokenizer_config_to_json
from training.model.checkpoint.hashes import write_hashes
from training.model.checkpoint.names import ADAPTER_FILE, COMPONENTS, SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE, find_weights
from training.model.checkpoint.rounding import round_on_average
from training.model.config import ModelConfig, SpeechTokenizerConfig
from training.model.errors import CheckpointError
from training.model.lora_config import LoraConfig

# A whole shard is converted and held in memory while it is written. The public 0.6B model is still one file.
MAX_SHARD_BYTES = 2_000_000_000

GENERATION_CONFIG_FILE = "generation_config.json"
PREPROCESSOR_CONFIG_FILE = "preprocessor_config.json"
ADAPTER_CONFIG_FILE = "adapter_config.json"
BASE_DIGEST_KEY = "base_sha256"
"""In an adapter's header: SHA-256 of the weights that it was trained on."""

PROVENANCE_FILE = "encore.json"
"""What an export says of where it comes from."""

# PEFT wraps the model it adapts, and the reference package's model calls its network `talker`.
ADAPTED_PREFIX = "base_model.model.talker."
ROWS = "talker.model.codec_embedding"
ROWS_TENSOR = f"base_model.model.{ROWS}.token_adapter.trainable_tokens_delta"
_VOCABULARY_FILES = ("vocab.json", "merges.txt", "tokenizer_config.json")
_OPTIONAL_FILES = ("tokenizer.json", "special_tokens_map.json", "added_tokens.json", PREPROCESSOR_CONFIG_FILE)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def save_checkpoint(
    folder: Path,
    *,
    config: ModelConfig,
    state: Mapping[str, Tensor],
    speech_tokenizer: Path | tuple[SpeechTokenizerConfig, Mapping[str, Tensor]],
    text_tokenizer: Path,
    generation_config: Mapping[str, Any] | None = None,
    notes: Mapping[str, Mapping[str, Any]] | None = None,
    dtype: torch.dtype = torch.bfloat16,
    rounds_on_average: bool = False,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    replace: bool = False,
    hashes: bool = False,
) -> None:
    """Write a checkpoint folder atomically.

    Args:
        folder: destination; its parent is made if needed. An existing checkpoint is kept unless `replace`.
        config: written as it was read, with the changes since.
        state: the weights by the file's names (`talker.…`, `speaker_encoder.…`), on any device.
        speech_tokenizer: a `speech_tokenizer` folder to copy, or a configuration and weights (stored as float32).
        text_tokenizer: the folder to copy the text tokenizer's files from, usually the base model's.
        generation_config: sampling defaults; those in the `text_tokenizer` folder when None.
        notes: further JSON files by name, such as the provenance.
        dtype: of the floating-point weights in `state` when stored.
        rounds_on_average: round weights to bfloat16 so that small changes are kept, see `rounding.py`.
        max_shard_bytes: larger weights are split over several files.
        replace: atomically replace an existing checkpoint.
        hashes: write down those of all files beside them; see `hashes.py`.

    Raises:
        CheckpointError: the folder exists, a source file is missing, a weight is NaN or infinite or belongs to no
            network, or the disk is full or fails. The destination is unchanged then.
        ConfigError: `config` is invalid.
    """
    if replace and folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG_FILE).is_file():
        raise CheckpointError(f"{folder} is not replaced: it is not a checkpoint. Choose another folder.")
    _check_names(state)
    sources = _find_text_tokenizer(text_tokenizer, with_generation_config=generation_config is None)
    try:
        with create_folder(folder, replace=replace) as new:
            _write_json(new / CONFIG_FILE, model_config_to_json(config, dtype))
            for source in sources:
                shutil.copyfile(source, new / source.name)
            if generation_config is not None:
                _write_json(new / GENERATION_CONFIG_FILE, generation_config)
            for name, content in (notes or {}).items():
                _write_json(new / name, content)
            write_speech_tokenizer(new / SPEECH_TOKENIZER_FOLDER, speech_tokenizer, max_shard_bytes)
            write_weights(new, state, dtype=dtype, rounds_on_average=rounds_on_average, max_shard_bytes=max_shard_bytes)
            if hashes:
                write_hashes(new)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(_explain(error, folder)) from error


def save_adapter(
    folder: Path,
    *,
    adapter: Mapping[str, Tensor],
    config: LoraConfig,
    rows: Mapping[int, Tensor],
    base_name: str | None,
    base_digest: str | None,
    notes: Mapping[str, Mapping[str, Any]] | None = None,
    replace: bool = False,
) -> None:
    """Write an adapter's folder atomically, as PEFT does, in float32.

    Args:
        folder: destination; its parent is made if needed. An existing adapter is kept unless `replace`.
        adapter: its tensors by the names that they have in the adapted talker.
        config: its shape.
        rows: of the codec vocabulary that the adapter replaces, such as a speaker's: index and embedding (D,).
        base_name: what others call the model that it belongs to.
        base_digest: SHA-256 of that model's weights.
        notes: further JSON files by name, such as the provenance.
        replace: atomically replace an existing adapter.

    Raises:
        CheckpointError: the folder exists, a weight is NaN or infinite, or the disk is full or fails.
    """
    if replace and folder.is_dir() and any(folder.iterdir()) and not (folder / ADAPTER_CONFIG_FILE).is_file():
        raise CheckpointError(f"{folder} is not replaced: it is not an adapter. Choose another folder.")
    state = {ADAPTED_PREFIX + name: tensor for name, tensor in adapter.items()}
    state[ROWS_TENSOR] = torch.stack(list(rows.values()))
    metadata = {"format": "pt"} | ({BASE_DIGEST_KEY: base_digest} if base_digest is not None else {})
    try:
        with create_folder(folder, replace=replace) as new:
            _write_json(new / ADAPTER_CONFIG_FILE, _adapter_config(config, base_name, list(rows)))
            for name, content in (notes or {}).items():
                _write_json(new / name, content)
            stored = {name: _to_stored(name, tensor, torch.float32) for name, tensor in state.items()}
            save_file(stored, new / ADAPTER_FILE, metadata=metadata)
            _sort_metadata(new / ADAPTER_FILE)
            write_hashes(new)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(_explain(error, folder)) from error


def _sort_metadata(file: Path) -> None:
    """See to it that the same adapter is the same bytes: safetensors writes its metadata in an order of chance."""
    with file.open("r+b") as opened:
        num_bytes = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(num_bytes))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        opened.seek(8)
        opened.write(json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(num_bytes))


def _adapter_config(config: LoraConfig, base_name: str | None, rows: list[int]) -> dict[str, Any]:
    """What PEFT's LoraConfig must know; everything else is its default."""
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": base_name,
        "revision": None,
        "inference_mode": True,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        # PEFT compares a pattern with the whole name. A list of layers' own names would also match other networks'.
        "target_modules": rf"talker\.(?:{config.pattern})",
        "trainable_token_indices": {ROWS: rows},
        "modules_to_save": None,
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "use_dora": False,
        "use_rslora": False,
    }


def write_weights(
    folder: Path,
    state: Mapping[str, Tensor],
    *,
    dtype: torch.dtype,
    max_shard_bytes: int,
    rounds_on_average: bool = False,
) -> None:
    """Write `model.safetensors`, or shards and their index, into an existing folder; not atomic by itself.

    Raises:
        CheckpointError: a weight is NaN or infinite, as it would be stored.
        OSError, SafetensorError: the disk is full or fails.
    """
    num_bytes = {name: tensor.numel() * _stored_dtype(tensor, dtype).itemsize for name, tensor in state.items()}
    shards = plan_shards(num_bytes, max_shard_bytes)
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        file = WEIGHTS_FILE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {name: _to_stored(name, state[name], dtype, on_average=rounds_on_average) for name in names}
        # transformers refuses files without this entry.
        save_file(tensors, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(names, file)
    if len(shards) > 1:
        index = {"metadata": {"total_size": sum(num_bytes.values())}, "weight_map": weight_map}
        _write_json(folder / INDEX_FILE, index)


def plan_shards(num_bytes: Mapping[str, int], max_shard_bytes: int) -> list[list[str]]:
    """Split tensors over files in order, each within the limit unless a single tensor is beyond it."""
    shards: list[list[str]] = [[]]
    filled = 0
    for name, size in num_bytes.items():
        if shards[-1] and filled + size > max_shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
    return shards


def _check_names(state: Mapping[str, Tensor]) -> None:
    prefixes = tuple(component.prefix for component in COMPONENTS.values() if not component.folder)
    strays = [name for name in state if not name.startswith(prefixes)]
    if strays or not state:
        raise CheckpointError(
            f"There is no place in a checkpoint for {strays[0] if strays else 'a model without weights'}: "
            f"names of weights start with {' or '.join(prefixes)}."
        )


def _find_text_tokenizer(folder: Path, *, with_generation_config: bool) -> list[Path]:
    """List the files to copy in addition to the weights."""
    required = [*_VOCABULARY_FILES, *([GENERATION_CONFIG_FILE] if with_generation_config else [])]
    missing = [name for name in required if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"{folder} lacks {', '.join(missing)}, which every checkpoint needs a copy of.")
    return [folder / name for name in (*required, *_OPTIONAL_FILES) if (folder / name).is_file()]


def write_speech_tokenizer(
    folder: Path,
    source: Path | tuple[SpeechTokenizerConfig, Mapping[str, Tensor]],
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write a `speech_tokenizer` folder: a copy of `source`, or its configuration and float32 weights; not atomic.

    Raises:
        CheckpointError: a source file is missing, or a weight is NaN or infinite.
        OSError, SafetensorError: the disk is full or fails.
    """
    folder.mkdir(exist_ok=True)
    if isinstance(source, Path):
        _copy_speech_tokenizer(source, folder)
        return
    config, state = source
    _write_json(folder / CONFIG_FILE, speech_tokenizer_config_to_json(config))
    _write_json(folder / PREPROCESSOR_CONFIG_FILE, _preprocessor_config(config))
    write_weights(folder, state, dtype=torch.float32, max_shard_bytes=max_shard_bytes)


def _copy_speech_tokenizer(source: Path, folder: Path) -> None:
    weights = find_weights(source)
    missing = [name for name in (CONFIG_FILE, PREPROCESSOR_CONFIG_FILE) if not (source / name).is_file()]
    if missing:
        raise CheckpointError(f"{source} is not a complete speech tokenizer: {', '.join(missing)} missing.")
    is_sharded = weights != [source / WEIGHTS_FILE]
    for path in (source / CONFIG_FILE, source / PREPROCESSOR_CONFIG_FILE, *weights):
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    if is_sharded:
        shutil.copyfile(source / INDEX_FILE, folder / INDEX_FILE)


def _preprocessor_config(config: SpeechTokenizerConfig) -> dict[str, Any]:
    """Settings of the reference package's feature extractor; this program needs only the configuration."""
    return {
        "feature_extractor_type": "EncodecFeatureExtractor",
        "feature_size": 1,
        "sampling_rate": config.input_sample_rate,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
    }


def _stored_dtype(tensor: Tensor, dtype: torch.dtype) -> torch.dtype:
    return dtype if tensor.is_floating_point() else tensor.dtype


def _to_stored(name: str, tensor: Tensor, dtype: torch.dtype, *, on_average: bool = False) -> Tensor:
    """Copy a tensor for storage; safetensors takes neither strided tensors nor tensors that share memory."""
    _require_finite(name, tensor, dtype)
    if on_average and tensor.dtype == torch.float32 and dtype == torch.bfloat16:
        stored = round_on_average(tensor, name)
    else:
        stored = tensor.detach().to(device="cpu", dtype=_stored_dtype(tensor, dtype), copy=True).contiguous()
    _require_finite(name, stored, dtype)
    return stored


def _require_finite(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    if tensor.is_floating_point() and tensor.numel() and not bool(torch.stack(torch.aminmax(tensor)).isfinite().all()):
        raise CheckpointError(
            f"{name} holds NaN or infinite values as {dtype}, so the checkpoint is not saved: training diverged. "
            "Go back to an earlier checkpoint and lower the learning rate."
        )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _explain(error: OSError | SafetensorError, folder: Path) -> str:
    number = error.errno if isinstance(error, OSError) else None
    # safetensors reports the system's error number only in its message.
    if number is None and (found := re.search(r"os error (\d+)", str(error))):
        number = int(found[1])
    if number in _NO_ROOM:
        return f"There is no room left on the disk for {folder}, so nothing was saved there. Free some space and retry."
    return f"{folder} could not be saved: {error}."
