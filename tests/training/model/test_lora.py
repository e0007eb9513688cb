"""An adapter changes nothing at first, only itself later, and is as good as a full fine-tune where it is as wide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_job, make_rows, write_dataset
from training.data.batching import BatchPlan, generator_of
from training.data.example import TrainingBatch
from training.job_data import plan_data
from training.loss import SpeechLoss
from training.model.lora_config import ADAPTED_LAYERS, LoraConfig
from training.model.network.lora import (
    LoraLinear,
    is_adapter_weight,
    merge_adapter,
    put_adapter,
)
from training.model.network.talker import Talker
from training.model.voice_model import VoiceModel

NUM_STEPS = 4
WIDEST = 128
"""The largest number of inputs of an adapted layer in the reference checkpoint."""


def read_talker() -> Talker:
    return VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu").talker.train()


def adapted(talker: nn.Module) -> dict[str, LoraLinear]:
    return {name: layer for name, layer in talker.named_modules() if isinstance(layer, LoraLinear)}


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> BatchPlan:
    folder: Path = tmp_path_factory.mktemp("lora")
    write_dataset(folder / "dataset", make_rows((9, 16, 23, 30, 12)))
    return plan_data(make_job(folder))[2]


def all_batches(batches: BatchPlan) -> Iterator[tuple[TrainingBatch, torch.Generator]]:
    for index in range(NUM_STEPS):
        micro_batch = batches.step(index).micro_batches[0]
        yield batches.collate(micro_batch), generator_of(micro_batch)


@pytest.mark.parametrize("layers", [*((one,) for one in ADAPTED_LAYERS), ADAPTED_LAYERS], ids="+".join)
def test_only_the_adapter_of_the_chosen_layers_is_trained(layers):
    talker = read_talker()
    names = {name for name, layer in talker.named_modules() if isinstance(layer, nn.Linear)}
    put_adapter(talker, LoraConfig(rank=2, alpha=4, layers=layers))
    found = adapted(talker)
    own = {"attention": ("model.", "self_attn"), "mlp": ("model.", "mlp"), "code-predictor": ("code_predictor.", "")}
    expected = {
        name
        for name in names
        for begin, part in (own[one] for one in layers)
        if re.match(rf"{re.escape(begin)}(model\.)?layers\.", name) and part in name
    }
    assert set(found) == expected
    trained = {name for name, parameter in talker.named_parameters() if parameter.requires_grad}
    assert trained == {f"{name}.lora_{side}.weight" for name in expected for side in "AB"}
    assert all(map(is_adapter_weight, trained))


def test_a_new_adapter_changes_nothing(batches):
    talker = read_talker()
    batch, _ = next(all_batches(batches))
    before = SpeechLoss(talker)(batch)
    put_adapter(talker, LoraConfig(rank=4, alpha=8, layers=ADAPTED_LAYERS))
    after = SpeechLoss(talker)(batch)
    assert (after.talker, after.code_predictor) == (before.talker, before.code_predictor)


def test_the_same_seed_begins_the_same_adapter():
    config = LoraConfig(rank=4, alpha=8)
    talkers = [read_talker() for _ in range(3)]
    for talker, seed in zip(talkers, (1, 1, 2), strict=True):
        torch.rand(1)  # whatever else has drawn
        put_adapter(talker, config, seed=seed)
    one, same, other = (next(iter(adapted(talker).values())).lora_A.weight for talker in talkers)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_merged_weights_compute_what_the_adapted_network_does(batches):
    talker, plain = read_talker(), read_talker()
    config = LoraConfig(rank=3, alpha=5, layers=ADAPTED_LAYERS)
    put_adapter(talker, config)
    for layer in adapted(talker).values():
        nn.init.normal_(layer.lora_B.weight, std=0.05)
    state = talker.state_dict()
    adapter = {name: tensor for name, tensor in state.items() if is_adapter_weight(name)}
    before = SpeechLoss(plain)(next(all_batches(batches))[0])
    plain.load_state_dict(merge_adapter(plain.state_dict(), adapter, config))
    batch, _ = next(all_batches(batches))
    found, expected = SpeechLoss(plain)(batch), SpeechLoss(talker)(batch)
    assert abs(expected.talker - before.talker) > 1e-3
    assert found.talker.item() == pytest.approx(expected.talker.item(), rel=1e-5)
    assert found.code_predictor.item() == pytest.approx(expected.code_predictor.item(), rel=1e-5)


def square(talker: Talker) -> LoraConfig:
    """An adapter that can express every change: as many ranks as a layer has inputs, orthonormal going in."""
    config = LoraConfig(rank=WIDEST, alpha=WIDEST, layers=ADAPTED_LAYERS)
    put_adapter(talker, config)
    for layer in adapted(talker).values():
        assert layer.in_features <= WIDEST
        nn.init.orthogonal_(layer.lora_A.weight)
    return config


def test_at_full_rank_gradients_are_those_of_the_whole_layers(batches):
    """With A'A = 1 and B = 0 the gradient of B, taken back through A, is that of the weight which B A is added to."""
    whole, narrow = read_talker(), read_talker()
    square(narrow)
    batch, _ = next(all_batches(batches))
    for talker in (whole, narrow):
        SpeechLoss(talker)(batch).combined().backward()
    for name, layer in adapted(narrow).items():
        expected = whole.get_parameter(f"{name}.weight").grad
        found = layer.scale * layer.lora_B.weight.grad @ layer.lora_A.weight
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_at_full_rank_steps_are_those_of_a_full_fine_tune_of_the_same_layers(batches):
    """Gradient descent on B with A held fixed moves W + B A by A'A = 1 times what it moves W: the losses stay the same.

    With A trained as well, and with AdamW, whose steps depend on the coordinates, that is so for the first loss only.
    """
    whole, narrow = read_talker(), read_talker()
    square(narrow)
    names = adapted(narrow)
    whole.requires_grad_(False)
    for name, layer in names.items():
        whole.get_parameter(f"{name}.weight").requires_grad_(True)
        layer.lora_A.requires_grad_(False)
    losses = [train(talker, batches) for talker in (whole, narrow)]
    assert losses[0][0] - losses[0][-1] > 0.05
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_at_full_rank_adamw_takes_the_steps_of_a_full_fine_tune_where_the_coordinates_are_the_same(batches):
    """With the identity for A every element of B is an element of the weight, and AdamW does the same with both."""
    whole, narrow = read_talker(), read_talker()
    square(narrow)
    whole.requires_grad_(False)
    for name, layer in adapted(narrow).items():
        whole.get_parameter(f"{name}.weight").requires_grad_(True)
        nn.init.eye_(layer.lora_A.weight.requires_grad_(False))
    losses = [train(talker, batches, adam=True) for talker in (whole, narrow)]
    assert losses[0][0] - losses[0][-1] > 0.05
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def train(talker: Talker, batches: BatchPlan, *, adam: bool = False) -> list[float]:
    """The objective before each step on the same batch."""
    module = SpeechLoss(talker)
    trained = [parameter for parameter in talker.parameters() if parameter.requires_grad]
    # Decay shrinks the weight in the one case and the change in the other.
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.0) if adam else torch.optim.SGD(trained, lr=0.5)
    batch, _ = next(all_batches(batches))
    losses = []
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = module(batch).combined()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_what_is_dropped_depends_on_the_batch_alone(batches):
    talker = read_talker()
    put_adapter(talker, LoraConfig(rank=4, alpha=8, dropout=0.5))
    for layer in adapted(talker).values():
        nn.init.normal_(layer.lora_B.weight, std=0.1)
    module = SpeechLoss(talker, has_dropout=True)
    once = [module(batch, generator).talker.item() for batch, generator in all_batches(batches)]
    torch.rand(5)
    backwards = [module(batch, generator).talker.item() for batch, generator in reversed(list(all_batches(batches)))]
    assert backwards[::-1] == once
    batch, _ = next(all_batches(batches))
    assert module(batch, torch.Generator().manual_seed(9)).talker.item() != once[0]
    assert module.eval()(batch).talker == module.eval()(batch).talker


def test_a_frozen_base_in_bfloat16_learns_with_a_float32_adapter(batches):
    """As on a GPU: the arithmetic is bfloat16, what is updated is not."""
    talker = read_talker().bfloat16()
    put_adapter(talker, LoraConfig(rank=8, alpha=16, layers=ADAPTED_LAYERS))
    module = SpeechLoss(talker)
    trained = [parameter for parameter in talker.parameters() if parameter.requires_grad]
    assert {parameter.dtype for parameter in trained} == {torch.float32}
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    batch, _ = next(all_batches(batches))
    losses = []
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = module(batch).combined()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.05
