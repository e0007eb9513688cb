"""Guided attention: it points at the right letters, and pulls the heads there."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from training.model.prompt import PromptHead, in_context_prompt, x_vector_prompt
from training.model.talker import Talker
from training.pretrain.talker_guidance import AttentionGuide, Span, spans_of, targets
from training.pretrain.talker_job import TalkerJob, TalkerSize

CONFIG = TalkerSize(width=64, num_layers=2, predictor_width=64, num_predictor_layers=1, codebook_size=16).config()
HEAD = PromptHead(role_ids=(257, 262, 10), language="english")


@given(text=st.lists(st.integers(32, 120), min_size=1, max_size=20), num_frames=st.integers(1, 30))
def test_the_text_of_a_span_is_the_text_to_be_spoken(text: list[int], num_frames: int):
    prompt = x_vector_prompt(CONFIG, HEAD, text)
    (span,) = spans_of(len(prompt.rows), num_frames, len(text))
    assert prompt.rows.text_ids[span.first_text : span.first_text + span.num_letters].tolist() == text
    assert prompt.rows.codec_ids[span.first_query] == CONFIG.talker.codec_bos_id


@given(
    text=st.lists(st.integers(32, 120), min_size=1, max_size=20),
    reference=st.lists(st.integers(32, 120), min_size=1, max_size=20),
    num_frames=st.integers(1, 30),
)
def test_in_context_both_texts_have_their_frames(text: list[int], reference: list[int], num_frames: int):
    codes = torch.zeros(num_frames, 16, dtype=torch.long)
    prompt = in_context_prompt(CONFIG, HEAD, text, reference_text_ids=reference, reference_codes_FQ=codes)
    before, answer = spans_of(len(prompt.rows), 7, len(text), (num_frames, len(reference)))
    ids = prompt.rows.text_ids
    assert ids[before.first_text : before.first_text + before.num_letters].tolist() == reference
    assert ids[answer.first_text : answer.first_text + answer.num_letters].tolist() == text
    assert prompt.rows.codec_ids[before.first_query] == CONFIG.talker.codec_bos_id
    assert answer.first_query == len(prompt.rows) - 1


def test_frames_look_at_the_text_from_left_to_right_and_nowhere_else():
    wanted = targets([[Span(30, 10, 5, 20)], [Span(3, 2, 1, 2)]], 45)
    assert wanted.shape == (2, 45, 45)
    rows = wanted[0, 30:40]
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(10))
    places = rows.argmax(dim=1)
    assert places.tolist() == sorted(places.tolist())
    assert 5 <= int(places[0]) < int(places[-1]) < 25
    assert wanted[0].sum() == rows.sum()


def test_the_guide_pulls_the_heads_to_the_text():
    torch.manual_seed(0)
    talker = Talker(CONFIG.talker, CONFIG.code_predictor)
    guide = AttentionGuide(talker)
    x = torch.randn(2, 30, 64)
    wanted = targets([[Span(12, 10, 2, 9)]] * 2, 30)
    optimizer = torch.optim.Adam(talker.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        talker(x)
        loss = guide.loss(wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]


def test_guidance_fades_to_nothing():
    job = TalkerJob.of_length(100)
    weights = [job.guidance_weight_at(step) for step in range(100)]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] == job.guidance_weight
    assert weights[60] == weights[99] == 0
