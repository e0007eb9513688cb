"""Guided attention: it points at the right letters, and pulls the heads there."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from training.model.network.talker import Talker
from training.model.prompt.prompt import PromptHead, in_context_prompt, x_vector_prompt
from training.pretrain.talker.guidance import AttentionGuide, Span, neighbourhoods, spans_of
from training.pretrain.talker.job import TalkerJob, TalkerSize

CONFIG = TalkerSize(width=64, num_layers=2, predictor_width=64, num_predictor_layers=1, codebook_size=16).config()
HEAD = PromptHead(role_ids=(257, 262, 10), language="english")


@given(text=st.lists(st.integers(32, 120), min_size=1, max_size=20), num_frames=st.integers(1, 30))
def test_the_text_of_a_span_is_the_text_to_be_spoken(text: list[int], num_frames: int):
    prompt = x_vector_prompt(CONFIG, HEAD, text)
    (span,) = spans_of(len(prompt.inputs), num_frames, len(text))
    assert prompt.inputs.text_ids[span.first_text : span.first_text + span.num_letters].tolist() == text
    assert prompt.inputs.codec_ids[span.first_query] == CONFIG.talker.codec_bos_id


@given(
    text=st.lists(st.integers(32, 120), min_size=1, max_size=20),
    reference=st.lists(st.integers(32, 120), min_size=1, max_size=20),
    num_frames=st.integers(1, 30),
)
def test_in_context_both_texts_have_their_frames(text: list[int], reference: list[int], num_frames: int):
    codes = torch.zeros(num_frames, 16, dtype=torch.long)
    prompt = in_context_prompt(CONFIG, HEAD, text, reference_text_ids=reference, reference_codes_FQ=codes)
    before, answer = spans_of(len(prompt.inputs), 7, len(text), (num_frames, len(reference)))
    ids = prompt.inputs.text_ids
    assert ids[before.first_text : before.first_text + before.num_letters].tolist() == reference
    assert ids[answer.first_text : answer.first_text + answer.num_letters].tolist() == text
    assert prompt.inputs.codec_ids[before.first_query] == CONFIG.talker.codec_bos_id
    assert answer.first_query == len(prompt.inputs) - 1


def test_frames_look_around_their_place_in_the_text_and_nowhere_else():
    allowed = neighbourhoods([[Span(30, 10, 5, 60)], [Span(3, 2, 1, 2)]], 90)
    rows = allowed[0, 30:40].float()
    middles = (rows * torch.arange(90)).sum(dim=1) / rows.sum(dim=1)
    assert middles.tolist() == sorted(middles.tolist())
    assert middles[0] < 15
    assert middles[-1] > 55
    assert allowed[0].sum() == allowed[0, 30:40, 5:65].sum() > 0
    assert allowed[1, 3:5, 1:3].all()


def test_the_guide_keeps_the_heads_at_the_text():
    torch.manual_seed(0)
    talker = Talker(CONFIG.talker, CONFIG.code_predictor)
    guide = AttentionGuide(talker)
    x = torch.randn(2, 60, 64)
    allowed = neighbourhoods([[Span(42, 10, 2, 39)]] * 2, 60)
    optimizer = torch.optim.Adam(talker.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        talker(x)
        loss = guide.loss(allowed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_guidance_fades_to_nothing():
    job = TalkerJob.of_length(100)
    weights = [job.guidance_weight_at(step) for step in range(100)]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] == job.guidance_weight
    assert weights[60] == weights[99] == 0
