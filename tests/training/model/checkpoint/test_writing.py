"""Checkpoint folders that are written: what is in them, and what is not done to a destination."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor

from tests.backend.audio.small_disk import run_on_small_disk
from tests.golden import GOLDEN_CHECKPOINT
from tests.training.model.checkpoint.networks import assert_same_state, read_state
from training.model.checkpoint.reading import find_weights, read_config, read_speech_tokenizer_config
from training.model.checkpoint.writing import plan_shards, save_checkpoint
from training.model.errors import CheckpointError

PROJECT = Path(__file__).parents[4]
GOLDEN_STATE = read_state([GOLDEN_CHECKPOINT / "model.safetensors"])
GOLDEN_CODEC_STATE = read_state([GOLDEN_CHECKPOINT / "speech_tokenizer" / "model.safetensors"])

# For another process: saves versions of a checkpoint over each other, each with one value throughout.
WRITER = """
import sys
from pathlib import Path
import torch
from tests.golden import GOLDEN_CHECKPOINT
from training.model.checkpoint.reading import read_config, read_speech_tokenizer_config
from training.model.checkpoint.writing import save_checkpoint
from training.model.errors import CheckpointError

CODEC = GOLDEN_CHECKPOINT / "speech_tokenizer"
SMALL_CODEC = (read_speech_tokenizer_config(GOLDEN_CHECKPOINT), {"weight": torch.zeros(1)})

def save(version, speech_tokenizer):
    save_checkpoint(
        Path(sys.argv[1]) / "saved",
        config=read_config(GOLDEN_CHECKPOINT),
        state={f"talker.{name}": torch.full((10_000,), version + 1.0) for name in range(20)},
        speech_tokenizer=speech_tokenizer,
        text_tokenizer=GOLDEN_CHECKPOINT,
        max_shard_bytes=100_000,
        replace=True,
    )
"""
SAVE_FOR_EVER = """
version = 0
while True:
    save(version, CODEC)
    print(version, flush=True)
    version += 1
"""
SAVE_WITHOUT_ROOM = """
for speech_tokenizer in (CODEC, SMALL_CODEC):
    try:
        save(0, speech_tokenizer)
    except CheckpointError as error:
        print(error, file=sys.stderr)
print("left:", list(Path(sys.argv[1]).iterdir()), file=sys.stderr)
"""


def save(folder: Path, **changes: Any) -> None:
    arguments: dict[str, Any] = {
        "config": read_config(GOLDEN_CHECKPOINT),
        "state": GOLDEN_STATE,
        "speech_tokenizer": GOLDEN_CHECKPOINT / "speech_tokenizer",
        "text_tokenizer": GOLDEN_CHECKPOINT,
        "dtype": torch.float32,
    }
    save_checkpoint(folder, **(arguments | changes))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_checkpoint_survives_being_read_and_saved(tmp_path: Path) -> None:
    save(tmp_path / "saved")
    written = bytes_in(tmp_path / "saved")
    original = {name: content for name, content in bytes_in(GOLDEN_CHECKPOINT).items() if "expected." not in name}
    assert written.keys() == original.keys()
    for name, content in original.items():
        same = json.loads(written[name]) == json.loads(content) if name.endswith(".json") else written[name] == content
        assert same, name
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_weights_are_stored_in_the_wanted_dtype_and_the_config_says_so(tmp_path: Path) -> None:
    config = read_config(GOLDEN_CHECKPOINT)
    raw = {**config.raw, "torch_dtype": "float32", "talker_config": {**config.raw["talker_config"], "dtype": "float32"}}
    steps = torch.tensor([1, 2])
    state = GOLDEN_STATE | {"talker.steps": steps}
    save(tmp_path / "saved", config=dataclasses.replace(config, raw=raw), state=state, dtype=torch.bfloat16)

    written = read_json(tmp_path / "saved" / "config.json")
    assert written["dtype"] == written["torch_dtype"] == written["talker_config"]["dtype"] == "bfloat16"
    assert written["talker_config"]["code_predictor_config"]["dtype"] is None
    expected = {name: tensor.to(torch.bfloat16) for name, tensor in GOLDEN_STATE.items()} | {"talker.steps": steps}
    assert_same_state(read_state(find_weights(tmp_path / "saved")), expected)


def test_a_speech_tokenizer_is_written_from_memory_and_copied_through_links(tmp_path: Path) -> None:
    codec = (read_speech_tokenizer_config(GOLDEN_CHECKPOINT), GOLDEN_CODEC_STATE)
    save(tmp_path / "from_memory", speech_tokenizer=codec, dtype=torch.bfloat16, max_shard_bytes=300_000)
    shards = find_weights(tmp_path / "from_memory" / "speech_tokenizer")
    assert len(shards) > 1
    assert_same_state(read_state(shards), GOLDEN_CODEC_STATE)

    cache = tmp_path / "cache"
    cache.mkdir()
    for path in (tmp_path / "from_memory" / "speech_tokenizer").iterdir():
        (cache / path.name).symlink_to(path)
    save(tmp_path / "copied", speech_tokenizer=cache)
    copied = tmp_path / "copied" / "speech_tokenizer"
    assert bytes_in(copied) == bytes_in(tmp_path / "from_memory" / "speech_tokenizer")
    assert not any(path.is_symlink() for path in copied.iterdir())


@given(
    st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 100), min_size=1, max_size=30), st.integers(1, 300)
)
def test_shards_hold_every_tensor_once_within_the_limit(num_bytes: dict[str, int], limit: int) -> None:
    shards = plan_shards(num_bytes, limit)
    assert [name for shard in shards for name in shard] == list(num_bytes)
    assert all(len(shard) == 1 or sum(num_bytes[name] for name in shard) <= limit for shard in shards)
    assert all(shards)


def test_shards_are_announced_as_transformers_wants_them(tmp_path: Path) -> None:
    save(tmp_path / "saved", max_shard_bytes=300_000)
    shards = find_weights(tmp_path / "saved")
    assert [shard.name for shard in shards] == [f"model-{n:05d}-of-00005.safetensors" for n in range(1, 6)]
    assert_same_state(read_state(shards), GOLDEN_STATE)
    index = read_json(tmp_path / "saved" / "model.safetensors.index.json")
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in GOLDEN_STATE.values())
    for shard in shards:
        with safe_open(shard, framework="pt") as opened:
            assert opened.metadata() == {"format": "pt"}
            assert all(index["weight_map"][name] == shard.name for name in opened.keys())  # noqa: SIM118


def test_sampling_defaults_can_be_given(tmp_path: Path) -> None:
    save(tmp_path / "saved", generation_config={"temperature": 0.5})
    assert read_json(tmp_path / "saved" / "generation_config.json") == {"temperature": 0.5}


def with_value(value: float) -> dict[str, Tensor]:
    return GOLDEN_STATE | {"talker.zz_last": torch.tensor([0.0, value])}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda _: {"state": with_value(float("nan"))}, r"talker\.zz_last holds NaN .* training diverged"),
        (lambda _: {"state": with_value(1e39), "dtype": torch.bfloat16}, "holds NaN or infinite values as"),
        (lambda _: {"state": GOLDEN_STATE | {"thinker.x": torch.zeros(1)}}, r"no place in a checkpoint for thinker\.x"),
        (lambda _: {"state": {}}, "no place in a checkpoint for a model without weights"),
        (
            lambda empty: {"text_tokenizer": empty},
            r"lacks vocab\.json, merges\.txt, tokenizer_config\.json, generation",
        ),
        (lambda empty: {"speech_tokenizer": empty / "nowhere"}, "There is no folder"),
    ],
)
@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
def test_a_failed_save_changes_nothing(
    tmp_path: Path, exists: bool, changes: Callable[[Path], dict[str, Any]], message: str
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    folder = tmp_path / "parent" / "saved"
    if exists:
        save(folder)
    before = bytes_in(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        save(folder, replace=True, **changes(empty))
    assert bytes_in(tmp_path) == before
    assert not [path for path in (tmp_path / "parent").glob("*") if path != folder]


def test_an_existing_checkpoint_is_replaced_on_request_only(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    save(folder)
    (folder / "notes.txt").write_text("of the old one")
    before = bytes_in(folder)
    with pytest.raises(CheckpointError, match="exists already"):
        save(folder)
    assert bytes_in(folder) == before
    save(folder, replace=True)
    assert bytes_in(folder).keys() == before.keys() - {"notes.txt"}
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_what_is_no_checkpoint_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("a file")
    with pytest.raises(CheckpointError, match="it is not a checkpoint"):
        save(tmp_path / "home", replace=True)
    with pytest.raises(CheckpointError, match=r"The file .* exists already"):
        save(tmp_path / "file", replace=True)
    assert bytes_in(tmp_path) == {"home/thesis.txt": b"years of work", "file": b"a file"}


def test_a_checkpoint_can_be_saved_over_its_own_source(tmp_path: Path) -> None:
    folder = shutil.copytree(GOLDEN_CHECKPOINT, tmp_path / "own")
    save(folder, text_tokenizer=folder, speech_tokenizer=folder / "speech_tokenizer", replace=True)
    assert_same_state(read_state(find_weights(folder)), GOLDEN_STATE)
    assert_same_state(read_state(find_weights(folder / "speech_tokenizer")), GOLDEN_CODEC_STATE)


def test_a_full_disk_is_said_in_plain_words(tmp_path: Path) -> None:
    # Once while a file is copied, once while weights are written.
    complaints = run_on_small_disk(tmp_path / "disk", WRITER + SAVE_WITHOUT_ROOM).splitlines()
    expected = f"There is no room left on the disk for {tmp_path}/disk/saved, so nothing was saved there."
    assert [complaint.partition(" Free some space")[0] for complaint in complaints] == [expected, expected, "left: []"]


def test_a_killed_writer_leaves_an_old_or_a_new_checkpoint(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER + SAVE_FOR_EVER, str(tmp_path)]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(3):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    state = read_state(find_weights(tmp_path / "saved"))
    assert len(state) == 20
    assert len({tensor.unique().item() for tensor in state.values()}) == 1
    read_config(tmp_path / "saved")
    read_speech_tokenizer_config(tmp_path / "saved")
    assert all(path.name.startswith(".saved.saving.") for path in tmp_path.iterdir() if path.name != "saved")

    save(tmp_path / "saved", replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
