"""What is found in checkpoint folders, and what is said about broken ones."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import CONTRACT, GOLDEN_CHECKPOINT
from training.model.checkpoint.reading import find_weights, read_config, read_speech_tokenizer_config
from training.model.config import ModelConfig, SpeechTokenizerConfig
from training.model.errors import CheckpointError, ConfigError

GOLDEN_CONFIG = json.loads((GOLDEN_CHECKPOINT / "config.json").read_text())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=5,
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the golden checkpoint, to be broken."""
    return shutil.copytree(GOLDEN_CHECKPOINT, tmp_path / "checkpoint")


def test_configurations_are_read() -> None:
    assert read_config(GOLDEN_CHECKPOINT) == ModelConfig.from_json(GOLDEN_CONFIG)
    codec = json.loads((GOLDEN_CHECKPOINT / "speech_tokenizer" / "config.json").read_text())
    assert read_speech_tokenizer_config(GOLDEN_CHECKPOINT) == SpeechTokenizerConfig.from_json(codec)


@pytest.mark.parametrize("size", ["0.6b-base", "1.7b-base"])
def test_published_configurations_are_read(size: str, tmp_path: Path) -> None:
    published = json.loads((CONTRACT / f"{size}.json").read_text())["config"]
    (tmp_path / "config.json").write_text(json.dumps(published))
    assert read_config(tmp_path).raw == published


def test_a_single_file_is_taken_before_an_index(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors.index.json").write_text("{}")
    assert find_weights(checkpoint) == [checkpoint / "model.safetensors"]


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def become_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("weights")


def become_pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def become_a_dangling_link(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "pruned")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (shutil.rmtree, "There is no folder"),
        (empty, r"is empty\. Expected in it are config\.json, model\.safetensors"),
        (become_a_file, "is a file; a checkpoint is a folder"),
    ],
)
def test_what_is_no_folder_is_explained(checkpoint: Path, break_it: Callable[[Path], None], message: str) -> None:
    break_it(checkpoint)
    for read in (read_config, read_speech_tokenizer_config, find_weights):
        with pytest.raises(CheckpointError, match=message):
            read(checkpoint)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (become_pickled, r"only as pickle \(pytorch_model\.bin\)\. .* run arbitrary code.* convert it"),
        (become_a_dangling_link, "is a broken link"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"has no weights: model\.safetensors is missing"),
    ],
)
def test_missing_weights_are_explained(checkpoint: Path, break_it: Callable[[Path], None], message: str) -> None:
    break_it(checkpoint)
    with pytest.raises(CheckpointError, match=message):
        find_weights(checkpoint)


def test_a_folder_without_config_is_no_checkpoint(checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"is not a checkpoint: it has no config\.json\. Expected are"):
        read_config(checkpoint)


def test_a_missing_speech_tokenizer_is_explained(checkpoint: Path) -> None:
    (checkpoint / "speech_tokenizer" / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"speech_tokenizer has no config\.json"):
        read_speech_tokenizer_config(checkpoint)
    shutil.rmtree(checkpoint / "speech_tokenizer")
    with pytest.raises(CheckpointError, match="has no speech tokenizer"):
        read_speech_tokenizer_config(checkpoint)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"config\.json is not valid: it is not JSON \(Expecting value, line 1\)"),
        (b'{"model_type":\n "qwen3_tts",,}', "line 2"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[1]", "must hold one JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "is not valid"),
        (b"{}", r"model_type is None, not 'qwen3_tts'"),
        (b" " * (64 * 2**20 + 1), "larger than 64 MiB"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_broken_config_is_explained_in_one_line(checkpoint: Path, content: bytes, message: str) -> None:
    (checkpoint / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(checkpoint)
    assert str(checkpoint) in str(caught.value)
    assert "\n" not in str(caught.value)


def list_paths(value: Any) -> list[tuple[str, ...]]:
    """The key paths of everything in a JSON object."""
    if not isinstance(value, dict):
        return [()]
    return [(), *[(key, *path) for key, child in value.items() for path in list_paths(child)]]


@given(path=st.sampled_from([path for path in list_paths(GOLDEN_CONFIG) if path]), value=json_values)
def test_any_change_of_a_config_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, path: tuple[str, ...], value: Any
) -> None:
    changed = copy.deepcopy(GOLDEN_CONFIG)
    section = changed
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    folder = tmp_path_factory.mktemp("changed")
    (folder / "config.json").write_text(json.dumps(changed))
    with suppress(ConfigError):
        assert read_config(folder).raw == changed


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder with two shards and an index."""
    (tmp_path / "model-1.safetensors").touch()
    (tmp_path / "model-2.safetensors").touch()
    write_index(tmp_path, {"a": "model-2.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"})
    return tmp_path


def write_index(folder: Path, weight_map: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_shards_are_found_through_the_index(sharded: Path) -> None:
    assert find_weights(sharded) == [sharded / "model-1.safetensors", sharded / "model-2.safetensors"]


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lacks 1 of its 2 weight files, first model-2\.safetensors"):
        find_weights(sharded)


@pytest.mark.parametrize(
    "name",
    [
        "../model-1.safetensors",
        "a/../../model-1.safetensors",
        "/etc/passwd",
        "/tmp/model.safetensors",
        "..\\model.safetensors",
        "model-1.bin",
        "model\0.safetensors",
        "",
        ".",
    ],
)
def test_an_index_never_leads_out_of_the_folder_nor_to_a_pickle(sharded: Path, name: str) -> None:
    write_index(sharded, {"a": name})
    with pytest.raises(CheckpointError, match="not a safetensors file inside the folder"):
        find_weights(sharded)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": {}}', '{"weight_map": ["a"]}'])
def test_a_broken_index_is_explained(sharded: Path, content: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors\.index\.json (is not valid|lists no weights)"):
        find_weights(sharded)
