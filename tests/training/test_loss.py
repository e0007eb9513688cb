from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.training.model.prompting import prompt_for
from training.data.example import IGNORED, build_example, collate, pack
from training.loss import SpeechLoss
from training.model.network.packing import Packing


@pytest.fixture(scope="module")
def examples(golden_model, speaker):
    generator = torch.Generator().manual_seed(3)
    texts = ("A short one.", "Something longer, to be padded against.", "Hm.")
    return [
        build_example(
            golden_model.config,
            prompt_for(golden_model, text, streaming_text=index == 1),
            torch.randint(0, 64, (9 + 7 * index, 16), generator=generator),
            speaker,
        )
        for index, text in enumerate(texts)
    ]


@pytest.fixture
def talker(golden_model):
    return copy.deepcopy(golden_model.talker)


def test_labels_are_shifted_by_one_position(golden_model, examples):
    for example in examples:
        codes = example.inputs.with_first_codebook()
        for position in range(len(example.inputs) - 1):
            expected = codes[position + 1, 0] if example.is_answer_T[position + 1] else IGNORED
            assert example.labels_T[position] == expected
        assert example.labels_T[-1] == golden_model.config.talker.codec_eos_token_id


def test_padding_and_company_do_not_change_the_losses(talker, examples):
    loss = SpeechLoss(talker)
    batched = loss(collate(examples))
    singles = [loss(collate([example])) for example in examples]
    for name, count in (("talker", "num_talker_labels"), ("code_predictor", "num_code_labels")):
        total = sum(getattr(single, name) * getattr(single, count) for single in singles)
        assert torch.allclose(getattr(batched, name), total / getattr(batched, count), atol=1e-5)
        assert getattr(batched, count) == sum(getattr(single, count) for single in singles)


def gradients(loss, batch):
    """Both losses, and the gradient of every weight."""
    losses = loss(batch, torch.Generator().manual_seed(5))
    trained = [parameter for parameter in loss.parameters() if parameter.requires_grad]
    return losses, torch.autograd.grad(losses.combined(), trained)


def assert_same_gradients(found, expected):
    for one, other in zip(found[0], expected[0], strict=True):
        assert torch.allclose(one, other, rtol=1e-5)
    for one, other in zip(found[1], expected[1], strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frame_counts=st.lists(st.integers(1, 40), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_packed_clips_learn_what_clips_in_rows_of_their_own_do(golden_model, talker, frame_counts, seed):
    generator = torch.Generator().manual_seed(seed)
    examples = [
        build_example(
            golden_model.config,
            prompt_for(golden_model, "Hm." * (1 + index), streaming_text=index % 2 == 1),
            torch.randint(0, 64, (frames, 16), generator=generator),
            # Voices that differ, which shows whose speaker goes where.
            torch.randn(golden_model.config.talker.hidden_size, generator=generator) * 0.1,
        )
        for index, frames in enumerate(frame_counts)
    ]
    loss = SpeechLoss(talker, code_predictor_fraction=0.5)
    assert_same_gradients(gradients(loss, pack(examples)), gradients(loss, collate(examples)))


def test_packing_is_a_block_diagonal_causal_mask(talker, examples):
    batch = pack(examples)
    assert batch.packing is not None
    clip = torch.arange(len(examples)).repeat_interleave(torch.tensor(batch.packing.lengths))
    mask = (clip.unsqueeze(0) == clip.unsqueeze(1)).tril()
    x_BTD = talker.embed_input(batch.inputs, batch.packing.spread(batch.speaker_ND))
    masked = talker(x_BTD, batch.packing.positions, mask)
    assert torch.allclose(talker(x_BTD, batch.packing.positions, batch.packing), masked, atol=1e-5)


@pytest.mark.gpu
def test_the_kernel_for_packed_clips_gives_what_they_give_one_by_one():
    packing = Packing((3, 70, 1, 129), torch.device("cuda"))
    heads = [torch.randn(1, number, 203, 128, device="cuda", requires_grad=True) for number in (4, 2, 2)]
    grown = torch.randn(1, 4, 203, 128, device="cuda")
    halves = [tensor.bfloat16() for tensor in heads]
    (expected, found) = packing.attend(*(tensor.float() for tensor in halves)), packing.attend(*halves).float()
    assert torch.allclose(found, expected, atol=0.05)
    for one, other in zip(*(torch.autograd.grad(out, heads, grown) for out in (found, expected)), strict=True):
        assert (one - other).norm() < 0.02 * other.norm()


def test_the_aligned_loss_learns_and_shifted_labels_do_not_match_it(talker, examples):
    """Memorizing one example must drive both losses down; scoring with labels shifted by one must not follow."""
    loss = SpeechLoss(talker)
    batch = collate(examples[:1])
    optimizer = torch.optim.AdamW([p for p in talker.parameters() if p.requires_grad], lr=3e-3)
    first = loss(batch)
    for _ in range(30):
        optimizer.zero_grad()
        loss(batch).combined(1.0).backward()
        optimizer.step()
    last = loss(batch)
    assert last.talker < 0.2 * first.talker
    assert last.code_predictor < 0.5 * first.code_predictor
    with torch.no_grad():
        logits = talker.codec_head(talker(talker.embed_input(batch.inputs, batch.speaker_ND)))
    shifted = batch.labels_BT.roll(-1, dims=1)
    kept = (shifted != IGNORED) & (batch.labels_BT != IGNORED)
    assert F.cross_entropy(logits[kept], shifted[kept]) > 5 * last.talker


def test_a_random_fraction_of_frames_is_unbiased(talker, examples):
    batch = collate(examples)
    with torch.no_grad():
        whole = SpeechLoss(talker)(batch)
        partial = SpeechLoss(talker, code_predictor_fraction=0.25)
        generator = torch.Generator().manual_seed(0)
        estimates = torch.stack([partial(batch, generator).code_predictor for _ in range(300)])
    standard_error = estimates.std() / len(estimates) ** 0.5
    assert standard_error > 0
    assert abs(estimates.mean() - whole.code_predictor) < 4 * standard_error
    assert partial(batch, generator).num_code_labels == whole.num_code_labels


def test_the_fraction_is_repeatable_from_its_generator(talker, examples):
    batch, loss = collate(examples), SpeechLoss(talker, code_predictor_fraction=0.5)
    first, second = (loss(batch, torch.Generator().manual_seed(5)).code_predictor for _ in range(2))
    assert first == second


@pytest.mark.parametrize("fraction", [0.0, -1.0, 1.5, float("nan")])
def test_a_fraction_out_of_range_is_refused(talker, fraction):
    with pytest.raises(ValueError, match="code_predictor_fraction"):
        SpeechLoss(talker, code_predictor_fraction=fraction)


def test_text_embedding_is_frozen_and_everything_else_is_trained(talker, examples):
    SpeechLoss(talker)(collate(examples)).combined().backward()
    without = {name for name, parameter in talker.named_parameters() if parameter.grad is None}
    assert without == {"model.text_embedding.weight"}


def test_bf16_parameters_give_nearly_the_same_losses(talker, examples):
    batch = collate(examples)
    exact = SpeechLoss(talker)(batch)
    rounded = SpeechLoss(talker.bfloat16())(batch)
    assert torch.allclose(rounded.talker, exact.talker, rtol=0.02)
    assert torch.allclose(rounded.code_predictor, exact.code_predictor, rtol=0.02)
