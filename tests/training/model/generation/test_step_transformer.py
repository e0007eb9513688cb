from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.model.generation.step_transformer import StepTransformer

CACHE_LENGTH = 24


@pytest.fixture(scope="module")
def backbone(golden_model):
    return golden_model.talker.model


def stepper(golden_model, num_slots):
    return StepTransformer(
        golden_model.talker.model,
        golden_model.config.talker,
        precision="fp32",
        num_slots=num_slots,
        cache_length=CACHE_LENGTH,
    )


@given(
    lengths=st.lists(st.integers(2, CACHE_LENGTH), min_size=1, max_size=3), seed=st.integers(0, 1000), data=st.data()
)
@settings(max_examples=20, deadline=None)
def test_prefill_and_steps_equal_the_whole_sequence(golden_model, backbone, lengths, seed, data):
    generator = torch.Generator().manual_seed(seed)
    width = golden_model.config.talker.hidden_size
    sequences = [torch.randn(length, width, generator=generator) for length in lengths]
    prefilled = [data.draw(st.integers(1, length)) for length in lengths]
    step = stepper(golden_model, len(lengths))
    with torch.inference_mode():
        found = [[*step.prefill(seq[:n], slot)] for slot, (seq, n) in enumerate(zip(sequences, prefilled, strict=True))]
        positions = torch.tensor(prefilled)
        while any(len(states) < len(seq) for states, seq in zip(found, sequences, strict=True)):
            x = torch.stack([seq[min(int(p), len(seq) - 1)] for seq, p in zip(sequences, positions, strict=True)])
            hidden = step.step(
                x, positions.clamp(max=CACHE_LENGTH - 1), kv_length=min(int(positions.max()) + 1, CACHE_LENGTH)
            )
            for slot, seq in enumerate(sequences):
                if len(found[slot]) < len(seq):
                    found[slot].append(hidden[slot])
            positions += 1
        for states, seq in zip(found, sequences, strict=True):
            assert torch.allclose(torch.stack(states), backbone(seq.unsqueeze(0))[0], atol=2e-5)


def test_a_wider_span_changes_nothing(golden_model):
    narrow, wide = stepper(golden_model, 1), stepper(golden_model, 1)
    x = torch.randn(5, golden_model.config.talker.hidden_size)
    with torch.inference_mode():
        for step in (narrow, wide):
            step.prefill(x[:4], 0)
        position = torch.tensor([4])
        assert torch.allclose(narrow.step(x[4:], position, 5), wide.step(x[4:], position, CACHE_LENGTH), atol=1e-5)


def test_consuming_empties_the_layers_and_keeps_the_result(golden_model):
    source = copy.deepcopy(golden_model.talker.model)
    consumed = StepTransformer(
        source, golden_model.config.talker, precision="fp32", num_slots=1, cache_length=CACHE_LENGTH, consume=True
    )
    x = torch.randn(5, golden_model.config.talker.hidden_size)
    with torch.inference_mode():
        assert torch.equal(consumed.prefill(x, 0), stepper(golden_model, 1).prefill(x, 0))
    assert all(parameter.is_meta for parameter in source.layers.parameters())
