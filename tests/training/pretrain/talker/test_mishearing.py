"""What a talker hears of the past is partly exchanged; what it is to predict is not."""

from __future__ import annotations

import torch

from tests.training.pretrain.talker.test_training import JOB
from training.data.example import build_example, collate
from training.model.network.talker_input import TalkerInput
from training.model.prompt.prompt import PromptHead, in_context_prompt, x_vector_prompt
from training.pretrain.talker.batches import TalkerBatch
from training.pretrain.talker.mishearing import misheard
from training.pretrain.talker.network import TalkerNetwork

FRAMES, ROWS, CODEBOOKS = 60, 12, 16
CONFIG = JOB.size.config()


def spoken(seed: int) -> torch.Tensor:
    return torch.randint(JOB.size.codebook_size, (FRAMES, CODEBOOKS), generator=torch.Generator().manual_seed(seed))


def batch() -> TalkerBatch:
    head = PromptHead(role_ids=(1, 2, 3), language="auto")
    speaker = torch.zeros(JOB.size.width)
    text = list(b"something said")
    prompts = [x_vector_prompt(CONFIG, head, text) for _ in range(ROWS - 1)]
    prompts.append(in_context_prompt(CONFIG, head, text, reference_text_ids=text, reference_codes_FQ=spoken(99)))
    examples = [build_example(CONFIG, prompt, spoken(row), speaker) for row, prompt in enumerate(prompts)]
    speech = torch.randn(ROWS, 64, CONFIG.speaker_encoder.mel_dim, generator=torch.Generator().manual_seed(0))
    return TalkerBatch(collate(examples), speech, [[] for _ in examples], is_paired=False)


def share_changed(before: TalkerInput, after: TalkerInput) -> torch.Tensor:
    """Of each row's codes, (rows,)."""
    changed = (before.with_first_codebook() != after.with_first_codebook()).float().mean(dim=-1)
    return (changed * before.is_frame).sum(dim=1) / before.is_frame.sum(dim=1)


def test_rows_lose_different_shares_up_to_the_one_asked_for_and_nothing_but_frames_changes():
    inputs = batch().examples.inputs
    heard = misheard(inputs, 0.5, torch.Generator().manual_seed(4))
    assert heard is not None
    shares = share_changed(inputs, heard)
    assert 0 <= shares.min() < 0.15
    assert 0.35 < shares.max() <= 0.6
    assert torch.equal(heard.is_frame, inputs.is_frame)
    assert torch.equal(heard.text_ids, inputs.text_ids)
    elsewhere = ~inputs.is_frame
    assert torch.equal(heard.codec_ids[elsewhere], inputs.codec_ids[elsewhere])
    assert (heard.residual_codes[elsewhere] == inputs.residual_codes[elsewhere]).all()


def test_exchanged_codes_are_of_the_same_codebook():
    inputs = batch().examples.inputs
    # Every codebook has entries that no other one uses.
    residual = inputs.residual_codes % 8 + 8 * torch.arange(1, CODEBOOKS)
    inputs = TalkerInput(
        text_ids=inputs.text_ids,
        codec_ids=torch.where(inputs.is_frame, inputs.codec_ids % 8, inputs.codec_ids),
        residual_codes=torch.where(inputs.is_frame.unsqueeze(-1), residual, inputs.residual_codes),
        is_speaker=inputs.is_speaker,
    )
    heard = misheard(inputs, 1.0, torch.Generator().manual_seed(5))
    assert heard is not None
    frames = heard.with_first_codebook()[heard.is_frame]
    assert torch.equal(frames // 8, torch.arange(CODEBOOKS).expand_as(frames))


def test_nothing_is_exchanged_without_a_share():
    assert misheard(batch().examples.inputs, 0.0, torch.Generator()) is None


def test_the_same_state_of_chance_mishears_the_same():
    inputs = batch().examples.inputs
    first, again = (misheard(inputs, 0.3, torch.Generator().manual_seed(6)) for _ in range(2))
    assert first is not None
    assert again is not None
    assert torch.equal(first.with_first_codebook(), again.with_first_codebook())


def test_the_losses_are_of_what_was_said():
    """A talker that ignores what it hears has the same loss, whatever it mishears."""
    torch.manual_seed(2)
    network = TalkerNetwork(JOB)
    with torch.no_grad():
        network.talker.model.codec_embedding.weight.zero_()
        for table in network.talker.code_predictor.model.codec_embedding:
            table.weight.zero_()
    given = batch()
    # The frames that the code predictor learns from are drawn by the same generator, so all of them are taken.
    network.loss.code_predictor_fraction = 1.0
    plain = network(given, torch.Generator().manual_seed(1))
    found = network(given, torch.Generator().manual_seed(1), misheard_share=0.4)
    assert torch.allclose(found.talker, plain.talker, atol=1e-6)
    assert torch.allclose(found.code_predictor, plain.code_predictor, atol=1e-6)
    assert found.num_talker_labels == plain.num_talker_labels


def test_what_is_heard_makes_a_difference():
    torch.manual_seed(2)
    network = TalkerNetwork(JOB)
    given = batch()
    plain, found = (
        network(given, torch.Generator().manual_seed(1), misheard_share=share).talker for share in (0.0, 0.4)
    )
    assert not torch.allclose(found, plain, atol=1e-6)
