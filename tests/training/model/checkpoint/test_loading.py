"""Weights from files into networks: all of them, no others, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.golden import GOLDEN_CHECKPOINT
from tests.training.model.checkpoint.networks import assert_same_state, network_like, read_state
from training.model.checkpoint.names import COMPONENTS, is_codebook_statistic
from training.model.checkpoint.reading import find_weights, load_weights
from training.model.errors import CheckpointError


def small_state() -> dict[str, Tensor]:
    return {
        "talker.embedding.weight": torch.randn(5, 3),
        "talker.norm.weight": torch.randn(3, dtype=torch.bfloat16),
        "talker.steps": torch.tensor([1, 2, 3]),
        "speaker_encoder.fc.weight": torch.randn(2, 2),
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file(small_state(), path)
    return path


def load(network: nn.Module, file: Path, prefix: str = "talker.", dtype: torch.dtype = torch.float32) -> nn.Module:
    load_weights(network, [file], prefix, dtype=dtype, device="cpu")
    return network


def talker_like_file(file: Path) -> nn.Module:
    return network_like(read_state([file], "talker."))


@pytest.mark.parametrize("component", COMPONENTS.values(), ids=COMPONENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loaded_weights_equal_the_files(component, dtype):
    files = find_weights(GOLDEN_CHECKPOINT / component.folder)
    expected = read_state(files, component.prefix)
    network = network_like(expected)

    load_weights(network, files, component.prefix, dtype=dtype, device="cpu")

    kept = {name for name in expected if is_codebook_statistic(name)}
    assert bool(kept) == (component is COMPONENTS["speech_tokenizer"])
    wanted = {name: tensor if name in kept else tensor.to(dtype) for name, tensor in expected.items()}
    assert_same_state(network.state_dict(), wanted)


@given(num_files=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_shards_make_no_difference(tmp_path_factory, num_files, seed):
    folder = tmp_path_factory.mktemp("shards")
    state = small_state()
    owner = torch.randint(num_files, (len(state),), generator=torch.Generator().manual_seed(seed)).tolist()
    files = [folder / f"{number}.safetensors" for number in range(num_files)]
    for number, shard in enumerate(files):
        save_file({name: state[name] for name, mine in zip(state, owner, strict=True) if mine == number}, shard)
    expected = read_state(files, "talker.")
    network = network_like(expected)

    load_weights(network, files, "talker.", dtype=torch.float32, device="cpu")

    wanted = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in expected.items()}
    assert_same_state(network.state_dict(), wanted)


def test_all_mismatches_are_in_one_message(file):
    network = network_like(
        {
            "embedding.weight": torch.zeros(3, 5),
            "norm.weight": torch.zeros(3),
            "head.weight": torch.zeros(1),
            "steps": torch.zeros(3, dtype=torch.int32),
        }
    )
    state = small_state() | {"talker.extra": torch.zeros(1), "thinker.extra": torch.zeros(1)}
    save_file(state, file)

    with pytest.raises(CheckpointError) as caught:
        load(network, file)

    message = str(caught.value)
    assert str(file) in message
    assert "1 missing (talker.head.weight)" in message
    assert "2 unknown (talker.extra, thinker.extra)" in message
    assert "2 of another shape or type (talker.embedding.weight is F32 [5, 3], not float [3, 5], " in message
    assert "talker.steps is I64 [3], not I32 [3])" in message
    assert all(tensor.is_meta for tensor in network.state_dict().values())


def test_many_names_are_counted_and_a_few_listed(tmp_path):
    save_file({f"talker.extra{number}": torch.zeros(1) for number in range(12)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"12 unknown \((talker\.extra\d+, ){4}talker\.extra\d+ and 7 more\)"):
        load(nn.Module(), tmp_path / "model.safetensors")


def test_a_tensor_in_two_files_is_refused(file):
    with pytest.raises(CheckpointError, match=r"both hold talker\."):
        load_weights(talker_like_file(file), [file, file], "talker.", dtype=torch.float32, device="cpu")


@given(
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    value=st.sampled_from([float("nan"), float("inf"), float("-inf")]),
    position=st.integers(0, 99),
)
@settings(max_examples=30)
def test_a_value_that_is_not_finite_is_found_wherever_it_is(tmp_path_factory, dtype, value, position):
    weight = torch.randn(100).to(dtype)
    weight[position] = value
    file = tmp_path_factory.mktemp("values") / "model.safetensors"
    save_file({"talker.weight": weight}, file)
    with pytest.raises(CheckpointError, match=r"talker\.weight holds NaN or infinite values"):
        load(network_like({"weight": weight}), file)


def test_a_value_the_wanted_dtype_cannot_hold_is_found(tmp_path):
    file = tmp_path / "model.safetensors"
    save_file({"talker.weight": torch.tensor([1e6])}, file)
    with pytest.raises(CheckpointError, match=r"as torch\.float16"):
        load(network_like({"weight": torch.zeros(1)}), file, dtype=torch.float16)


@given(st.data())
@settings(max_examples=60)
def test_a_damaged_file_is_refused_or_read_as_it_is(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("damaged") / "model.safetensors"
    save_file(small_state(), file)
    network = talker_like_file(file)
    content = bytearray(file.read_bytes())
    if data.draw(st.booleans(), label="cut"):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        num_header_bytes = 8 + int.from_bytes(content[:8], "little")
        position = data.draw(st.integers(0, num_header_bytes - 1))
        content[position] ^= data.draw(st.integers(1, 255))
    file.write_bytes(content)
    try:
        load(network, file)
    except CheckpointError as error:
        refusal = str(error)
    else:
        refusal = ""
    assert str(file) in refusal or not any(tensor.is_meta for tensor in network.state_dict().values())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a pickle in a zip", b"\0" * 100])
def test_another_kind_of_file_is_named(tmp_path, content):
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged or not a safetensors file"):
        load(nn.Module(), file)


def test_the_network_owns_its_memory(file):
    expected = {name: tensor.clone() for name, tensor in read_state([file], "talker.").items()}
    network = load(talker_like_file(file), file)
    with file.open("r+b") as content:
        content.write(b"\0" * file.stat().st_size)
    file.unlink()
    wanted = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in expected.items()}
    assert_same_state(network.state_dict(), wanted)


def test_what_is_no_weight_is_left_alone(file):
    network = talker_like_file(file)
    network.register_buffer("rotary", torch.tensor([1.0, 2.0]), persistent=False)
    network.get_parameter("norm.weight").requires_grad_(False)

    load(network, file)

    assert network.get_buffer("rotary").tolist() == [1.0, 2.0]
    assert not network.get_parameter("norm.weight").requires_grad
    assert network.get_parameter("embedding.weight").requires_grad
    assert "steps" in dict(network.named_buffers())
