"""Blended embeddings lie between those of two speakers of a batch, in about the share of rows that was asked for."""

from __future__ import annotations

import pytest
import torch

from tests.training.pretrain.talker.test_training import JOB
from training.data.example import build_example, collate
from training.model.prompt.prompt import PromptHead, x_vector_prompt
from training.pretrain.talker.batches import TalkerBatch
from training.pretrain.talker.blending import blended
from training.pretrain.talker.network import TalkerNetwork

ROWS, WIDTH = 40, 6


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SPEAKERS = torch.randn(ROWS, WIDTH, generator=drawn(1))


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_blended_rows_lie_between_two_speakers(share: float):
    num_changed = 0
    for seed in range(10):
        found = blended(SPEAKERS, share, drawn(seed))
        # The other row is equally far away for all; the only distance at which every row lies between the two.
        fits = []
        for distance in range(1, ROWS):
            ahead = SPEAKERS.roll(distance, 0) - SPEAKERS
            part = ((found - SPEAKERS) * ahead).sum(1, keepdim=True) / ahead.square().sum(1, keepdim=True)
            if torch.allclose(SPEAKERS + part * ahead, found, atol=1e-5) and part.min() >= 0 and part.max() <= 1:
                fits.append(part)
        assert len(fits) == 1
        num_changed += int((fits[0] > 0).sum())
    assert num_changed == pytest.approx(10 * ROWS * share, rel=0.2)


def test_no_share_and_a_single_row_change_nothing():
    assert torch.equal(blended(SPEAKERS, 0.0, drawn(1)), SPEAKERS)
    assert torch.equal(blended(SPEAKERS[:1], 1.0, drawn(1)), SPEAKERS[:1])


def test_all_rows_learn():
    speakers = SPEAKERS.clone().requires_grad_()
    blended(speakers, 1.0, drawn(2)).sum().backward()
    assert speakers.grad is not None
    assert (speakers.grad.abs().sum(1) > 0).any()
    # What one row gives up, another one has.
    assert float(speakers.grad.sum()) == pytest.approx(ROWS * WIDTH, rel=1e-5)


def batch() -> TalkerBatch:
    config = JOB.size.config()
    prompt = x_vector_prompt(config, PromptHead(role_ids=(1, 2, 3), language="auto"), list(b"something said"))
    said = [torch.randint(JOB.size.codebook_size, (60, 16), generator=drawn(seed)) for seed in range(12)]
    examples = [build_example(config, prompt, codes, torch.zeros(JOB.size.width)) for codes in said]
    mel = torch.randn(len(said), 64, config.speaker_encoder.mel_dim, generator=drawn(0))
    return TalkerBatch(collate(examples), mel, [[] for _ in examples], is_paired=False)


@torch.no_grad()
def test_only_speakers_of_references_are_blended():
    torch.manual_seed(3)
    network = TalkerNetwork(JOB)
    for is_paired in (False, True):
        given = batch()._replace(is_paired=is_paired)
        # The frames whose code predictor is trained are drawn after the blends, so only the talker's loss compares.
        plain, found = (network(given, drawn(1), blended_share=share).talker for share in (0.0, 1.0))
        assert torch.equal(plain, found) != is_paired
