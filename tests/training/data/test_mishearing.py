"""What a talker hears of the past is partly exchanged; what it is to predict is not."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from tests.training.finetuning import make_rows, write_dataset
from training.data.batching import BatchPlan, BatchShape
from training.data.example import TrainingBatch, TrainingExample, build_example, collate, pack
from training.data.mishearing import misheard
from training.data.training_set import read_training_set
from training.loss import SpeechLoss
from training.model.prompt.prompt import PromptHead, in_context_prompt, x_vector_prompt

FRAMES, EXAMPLES = 60, 12
WAYS = {"in rows of their own": collate, "packed": pack}


def spoken(config, seed: int) -> torch.Tensor:
    shape = FRAMES, config.talker.num_code_groups
    return torch.randint(config.code_predictor.vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def examples(config) -> list[TrainingExample]:
    head = PromptHead(role_ids=(1, 2, 3), language="auto")
    speaker = torch.zeros(config.talker.hidden_size)
    text = [4, 5, 6]
    prompts = [x_vector_prompt(config, head, text) for _ in range(EXAMPLES - 1)]
    reference = spoken(config, 99)
    prompts.append(in_context_prompt(config, head, text, reference_text_ids=text, reference_codes_FQ=reference))
    return [build_example(config, prompt, spoken(config, row), speaker) for row, prompt in enumerate(prompts)]


@pytest.fixture(params=WAYS, name="batch")
def _batch(request, golden_model) -> TrainingBatch:
    return WAYS[request.param](examples(golden_model.config))


def heard_of(batch: TrainingBatch, share: float, seed: int = 4) -> TrainingBatch:
    found = misheard(batch, share, torch.Generator().manual_seed(seed))
    assert found.heard is not None
    return replace(batch, inputs=found.heard)


def shares_changed(before: TrainingBatch, after: TrainingBatch) -> torch.Tensor:
    """Of each example's codes (N,)."""
    inputs = before.inputs
    changed = (inputs.with_first_codebook() != after.inputs.with_first_codebook()).float().mean(dim=-1)
    if before.packing is None:
        return (changed * inputs.is_frame).sum(dim=1) / inputs.is_frame.sum(dim=1)
    parts = zip(changed[0].split(before.packing.lengths), inputs.is_frame[0].split(before.packing.lengths), strict=True)
    return torch.stack([share[is_frame].mean() for share, is_frame in parts])


def test_examples_lose_different_shares_up_to_the_one_asked_for_and_nothing_but_frames_changes(batch):
    heard = heard_of(batch, 0.5)
    shares = shares_changed(batch, heard)
    assert len(shares) == EXAMPLES
    assert 0 <= shares.min() < 0.15
    assert 0.35 < shares.max() <= 0.6
    inputs, read = batch.inputs, heard.inputs
    assert torch.equal(read.is_frame, inputs.is_frame)
    assert torch.equal(read.text_ids, inputs.text_ids)
    elsewhere = ~inputs.is_frame
    assert torch.equal(read.codec_ids[elsewhere], inputs.codec_ids[elsewhere])
    assert (read.residual_codes[elsewhere] == inputs.residual_codes[elsewhere]).all()


def test_exchanged_codes_are_of_the_same_codebook(batch):
    inputs = batch.inputs
    # Every codebook has entries that no other one uses.
    num_codebooks = inputs.residual_codes.shape[-1] + 1
    residual = inputs.residual_codes % 4 + 4 * torch.arange(1, num_codebooks)
    marked = replace(
        inputs,
        codec_ids=torch.where(inputs.is_frame, inputs.codec_ids % 4, inputs.codec_ids),
        residual_codes=torch.where(inputs.is_frame.unsqueeze(-1), residual, inputs.residual_codes),
    )
    heard = heard_of(replace(batch, inputs=marked), 1.0).inputs
    frames = heard.with_first_codebook()[heard.is_frame]
    assert torch.equal(frames // 4, torch.arange(num_codebooks).expand_as(frames))


def test_nothing_is_exchanged_without_a_share(batch):
    assert misheard(batch, 0.0, torch.Generator()) is batch


def test_the_same_state_of_chance_mishears_the_same(batch):
    first, again, other = (heard_of(batch, 0.3, seed).inputs.with_first_codebook() for seed in (6, 6, 7))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_losses_are_of_what_was_said(batch, golden_model):
    """A talker that ignores what it hears has the same loss, whatever it mishears; any other has not."""
    heard = misheard(batch, 0.4, torch.Generator().manual_seed(1))
    talker = copy.deepcopy(golden_model.talker)
    loss = SpeechLoss(talker)
    with torch.no_grad():
        plain, found = loss(batch), loss(heard)
        assert not torch.allclose(found.talker, plain.talker, atol=1e-4)
        talker.model.codec_embedding.weight.zero_()
        for table in talker.code_predictor.model.codec_embedding:
            table.weight.zero_()
        plain, found = loss(batch), loss(heard)
    assert torch.allclose(found.talker, plain.talker, atol=1e-6)
    assert torch.allclose(found.code_predictor, plain.code_predictor, atol=1e-6)
    assert found.num_talker_labels == plain.num_talker_labels


@pytest.mark.parametrize("batching", ["packed", "shuffled"])
def test_a_plan_mishears_the_same_whoever_asks_and_predicts_what_it_does_without(tmp_path, golden_model, batching):
    folder = write_dataset(tmp_path / "dataset", make_rows([40] * 9))
    model = golden_model
    training_set = read_training_set(folder, model.config, model.text_tokenizer, max_tokens=200)[1]
    shape = BatchShape(micro_batches=2, micro_batch_tokens=200, max_tokens=200, batching=batching)
    plain, first, again = (
        BatchPlan(training_set, replace(shape, misheard_share=share), seed=3, num_epochs=1) for share in (0, 0.3, 0.3)
    )
    micro_batches = [part for step in range(plain.num_steps) for part in plain.step(step).micro_batches]
    assert micro_batches == [part for step in range(first.num_steps) for part in first.step(step).micro_batches]
    read = []
    for micro_batch in micro_batches:
        without, found, repeated = (plan.collate(micro_batch) for plan in (plain, first, again))
        assert without.heard is None
        assert found.heard is not None
        assert repeated.heard is not None
        assert torch.equal(found.heard.residual_codes, repeated.heard.residual_codes)
        assert torch.equal(found.inputs.residual_codes, without.inputs.residual_codes)
        assert torch.equal(found.labels_BT, without.labels_BT)
        is_exchanged = (found.heard.residual_codes != found.inputs.residual_codes)[found.inputs.is_frame]
        read.append(is_exchanged.float().mean())
    assert 0.03 < torch.stack(read).mean() < 0.27
