"""Finds and reads the parts of a checkpoint folder, strictly, with one-line errors for damaged ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from training.model.checkpoint.names import COMPONENTS, SPEECH_TOKENIZER_FOLDER, Component, is_codebook_statistic
from training.model.config import ModelConfig, SpeechTokenizerConfig
from training.model.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from training.model.checkpoint.stored_tensors import StoredTensor

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
EXPECTED_FILES = (
    "config.json, model.safetensors (or shards with model.safetensors.index.json), vocab.json, merges.txt, "
    "tokenizer_config.json, and a folder speech_tokenizer with its own config.json and model.safetensors"
)

_PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl"})
# The published indexes are far below a megabyte; an untrusted file must not exhaust the memory.
_MAX_JSON_BYTES = 64 * 2**20


def read_config(folder: Path) -> ModelConfig:
    """Read the configuration of talker, code predictor and speaker encoder from `config.json`.

    Raises:
        CheckpointError: `folder` is not a checkpoint, or the file cannot be read.
        ConfigError: the file is not JSON, or describes another network.
    """
    names = _list_folder(folder)
    if CONFIG_FILE not in names:
        raise CheckpointError(f"{folder} is not a checkpoint: it has no config.json. Expected are {EXPECTED_FILES}.")
    raw = _read_config_object(folder / CONFIG_FILE)
    try:
        return ModelConfig.from_json(raw)
    except ConfigError as error:
        raise ConfigError(f"In {folder}: {error}") from error


def read_speech_tokenizer_config(folder: Path) -> SpeechTokenizerConfig:
    """Read `speech_tokenizer/config.json` of the checkpoint in `folder`.

    Raises:
        CheckpointError: `folder` has no speech tokenizer, or the file cannot be read.
        ConfigError: the file is not JSON, or describes another codec.
    """
    config_file = _require_speech_tokenizer(folder) / CONFIG_FILE
    try:
        return SpeechTokenizerConfig.from_json(_read_config_object(config_file))
    except ConfigError as error:
        raise ConfigError(f"In {folder}: {error}") from error


def find_weights(folder: Path) -> list[Path]:
    """List the safetensors files that hold the weights of `folder`: one, or the shards its index names.

    Pass `checkpoint / "speech_tokenizer"` for the speech tokenizer's. If a folder has both a single file and an index,
    the single file is used, as in transformers.

    Raises:
        CheckpointError: no folder, no weights, only pickled weights, or an index that is damaged, names a missing
            shard, or points outside the folder.
    """
    names = _list_folder(folder)
    if WEIGHTS_FILE in names:
        return [_require_file(folder / WEIGHTS_FILE)]
    if INDEX_FILE in names:
        return _read_shard_list(folder / INDEX_FILE)
    pickles = sorted(name for name in names if PurePosixPath(name).suffix in _PICKLE_SUFFIXES)
    if pickles:
        raise CheckpointError(
            f"{folder} has its weights only as pickle ({pickles[0]}). Opening a pickle can run arbitrary code, so it "
            "is not opened here. Get the model as safetensors, or convert it with safetensors' save_file on a machine "
            "where you trust the file."
        )
    raise CheckpointError(f"{folder} has no weights: {WEIGHTS_FILE} is missing. Expected are {EXPECTED_FILES}.")


def load_weights(
    network: nn.Module,
    files: Sequence[Path],
    prefix: str,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
    keep_float32: Callable[[str], bool] = is_codebook_statistic,
) -> None:
    """Load the tensors called `prefix` + a name of `network` from safetensors files, one tensor at a time.

    Parameters and persistent buffers are replaced, so `network` may have been built on the meta device, and they own
    their memory: the files may be deleted afterwards. Floating-point ones become `dtype`, or float32 if `keep_float32`
    returns true for their name in `network`; others keep their dtype in `network`. Buffers that are not saved (rotary
    tables) are left alone; a network built on the meta device must make its own afterwards.

    Tensors under other prefixes are not read, but have to belong to a component in `names.COMPONENTS`.

    Raises:
        CheckpointError: missing, unknown and misshapen tensors, all in one message and before anything is replaced;
            a file that is damaged; values that are NaN or infinite (after which `network` is half loaded).
    """
    import torch  # noqa: PLC0415 - see `_open_stored`

    assert dtype.is_floating_point, dtype
    with ExitStack() as stack:
        stored = _open_stored(stack, network, files, prefix)
        for name, target in network.state_dict(keep_vars=True).items():
            wanted = torch.float32 if keep_float32(name) else dtype
            values = stored[name].read(wanted if target.is_floating_point() else target.dtype)
            _replace(network, name, target, values.to(device))


def check_weights(network: nn.Module, files: Sequence[Path], prefix: str) -> None:
    """Check that `load_weights` would find what it needs, from the files' headers and lengths alone.

    Raises:
        CheckpointError: missing, unknown and misshapen tensors, or a truncated file.
    """
    with ExitStack() as stack:
        _open_stored(stack, network, files, prefix)


def _open_stored(
    stack: ExitStack, network: nn.Module, files: Sequence[Path], prefix: str
) -> Mapping[str, StoredTensor]:
    """All tensors of a network in open files, with their shapes checked."""
    # Here and below: configurations are also read where no network is built, and PyTorch takes a second to import.
    from training.model.checkpoint.stored_tensors import (  # noqa: PLC0415 - see above
        compare_tensors,
        locate_tensors,
        open_safetensors,
    )

    listed = [component for component in COMPONENTS.values() if component.prefix == prefix]
    component = listed[0] if listed else Component(folder="", prefix=prefix)
    neighbours = [other for other in COMPONENTS.values() if other.folder == component.folder]
    open_files = [(path, stack.enter_context(open_safetensors(path))) for path in files]
    stored, strays = locate_tensors(open_files, component, neighbours)
    mismatch = compare_tensors(stored, network.state_dict(keep_vars=True), prefix)
    mismatch.unknown += strays
    mismatch.raise_if_any(files[0])
    return stored


def _replace(network: nn.Module, name: str, target: Tensor, values: Tensor) -> None:
    from torch import nn  # noqa: PLC0415 - see `_open_stored`

    owner_name, _, attribute = name.rpartition(".")
    if isinstance(target, nn.Parameter):
        values = nn.Parameter(values, requires_grad=target.requires_grad)
    setattr(network.get_submodule(owner_name), attribute, values)


def _list_folder(folder: Path) -> set[str]:
    """List the names in `folder`, or explain why it cannot be a checkpoint."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except FileNotFoundError as error:
        raise CheckpointError(f"There is no folder {folder}.") from error
    except NotADirectoryError as error:
        raise CheckpointError(
            f"{folder} is a file; a checkpoint is a folder. Expected in it are {EXPECTED_FILES}."
        ) from error
    except OSError as error:
        raise CheckpointError(f"The folder {folder} cannot be read: {error.strerror}.") from error
    if not names:
        raise CheckpointError(f"The folder {folder} is empty. Expected in it are {EXPECTED_FILES}.")
    return names


def _require_speech_tokenizer(folder: Path) -> Path:
    if SPEECH_TOKENIZER_FOLDER not in _list_folder(folder):
        raise CheckpointError(
            f"{folder} has no speech tokenizer: the folder speech_tokenizer with config.json and model.safetensors is "
            "missing. Copy it from the model that this checkpoint was made from."
        )
    speech_tokenizer = folder / SPEECH_TOKENIZER_FOLDER
    if CONFIG_FILE not in _list_folder(speech_tokenizer):
        raise CheckpointError(f"{speech_tokenizer} has no config.json.")
    return speech_tokenizer


def _require_file(path: Path) -> Path:
    """Refuse folders, and broken links (which a pruned download cache contains)."""
    if not path.is_file():
        raise CheckpointError(f"{path} is not a file, or is a broken link. Get the model again.")
    return path


def _read_shard_list(index_file: Path) -> list[Path]:
    try:
        index = read_json_object(index_file)
    except ValueError as error:
        raise CheckpointError(f"{index_file} is not valid: {error}") from error
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, Mapping) or not weight_map:
        raise CheckpointError(f"{index_file} lists no weights: weight_map is missing or empty.")
    shards = [_resolve_shard(index_file, name) for name in sorted(set(map(str, weight_map.values())))]
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise CheckpointError(
            f"{index_file.parent} lacks {len(missing)} of its {len(shards)} weight files, first {missing[0]}. "
            "Get the model again."
        )
    return shards


def _resolve_shard(index_file: Path, name: str) -> Path:
    """Turn a name from the index into a path, never one outside the folder and never a pickle."""
    relative = PurePosixPath(name)
    leads_out = relative.is_absolute() or ".." in relative.parts or "\\" in name or "\0" in name
    if leads_out or relative.suffix != ".safetensors":
        raise CheckpointError(f"{index_file} names {name!r}, which is not a safetensors file inside the folder.")
    return index_file.parent / relative


def _read_config_object(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid: {error}") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """Parse a file that must hold one JSON object.

    Raises:
        ValueError: it does not; the message is written to follow the file's name.
        CheckpointError: the file cannot be read.
    """
    try:
        with _require_file(path).open("rb") as file:
            content = file.read(_MAX_JSON_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > _MAX_JSON_BYTES:
        raise ValueError(f"it is larger than {_MAX_JSON_BYTES // 2**20} MiB.")
    try:
        parsed = json.loads(content)
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg}, line {error.lineno}).") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply.") from error
    if not isinstance(parsed, dict):
        raise ValueError("it must hold one JSON object.")
    return parsed
