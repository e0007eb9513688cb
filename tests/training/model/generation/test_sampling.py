from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.model.errors import PromptError
from training.model.generation.sampling import DrawSettings, draw, penalize_repetition
from training.model.sampling_settings import Sampling

VOCABULARY = 40


def settings_for(*slots):
    made = DrawSettings(len(slots), VOCABULARY, "cpu")
    for slot, values in enumerate(slots):
        made.set_slot(slot, values)
    return made


def test_draws_follow_the_softmax():
    logits = torch.randn(1, VOCABULARY)
    made = settings_for((1.0, 0, 1.0))
    uniforms = (torch.arange(20_000) + 0.5) / 20_000
    drawn = torch.cat([draw(logits, u.view(1), made) for u in uniforms])
    found = torch.bincount(drawn, minlength=VOCABULARY) / len(uniforms)
    assert torch.allclose(found, torch.softmax(logits[0], dim=0), atol=1e-3)


@given(
    seed=st.integers(0, 10_000),
    temperature=st.floats(0.1, 3.0),
    top_k=st.integers(0, VOCABULARY + 5),
    top_p=st.floats(0.05, 1.0),
    uniform=st.floats(0.0, 1.0, exclude_max=True, width=32),
)
@settings(max_examples=200, deadline=None)
def test_what_is_cut_off_is_never_drawn(seed, temperature, top_k, top_p, uniform):
    logits = torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(seed))
    logits[0, ::7] = -torch.inf
    code = draw(logits, torch.tensor([uniform]), settings_for((temperature, top_k, top_p)))[0]
    assert logits[0, code] > -torch.inf
    rank = int((logits[0] > logits[0, code]).sum())
    assert top_k == 0 or rank < top_k
    likelier = torch.softmax(logits[0] / temperature, dim=0)
    if top_k:
        kept = likelier.topk(min(top_k, VOCABULARY)).values
        likelier = likelier / kept.sum()
    assert likelier[logits[0] > logits[0, code]].sum() <= top_p + 1e-4


def test_slots_draw_as_if_alone():
    logits = torch.randn(3, VOCABULARY)
    uniforms = torch.tensor([0.2, 0.6, 0.9])
    values = [(0.0, 0, 1.0), (0.7, 5, 0.9), (1.5, 0, 1.0)]
    together = draw(logits, uniforms, settings_for(*values))
    alone = [draw(logits[i : i + 1], uniforms[i : i + 1], settings_for(values[i])) for i in range(3)]
    assert torch.equal(together, torch.cat(alone))
    assert together[0] == logits[0].argmax()


def test_an_emptied_slot_asks_for_nothing():
    made = settings_for((0.9, 0, 0.5))
    made.set_slot(0, None)
    assert made.plan == DrawSettings(1, VOCABULARY, "cpu").plan


def test_repetition_penalty_touches_used_codes_only():
    logits = torch.tensor([[2.0, -2.0, 1.0, -torch.inf]])
    used = torch.tensor([[True, True, False, True]])
    penalized = penalize_repetition(logits, used, torch.tensor([2.0]))
    assert penalized.tolist() == [[1.0, -4.0, 1.0, -torch.inf]]


def test_defaults_come_from_the_checkpoint():
    raw = {
        "do_sample": False,
        "temperature": 0.7,
        "top_k": 20,
        "subtalker_temperature": 0.5,
        "subtalker_dosample": True,
    }
    sampling = Sampling.from_generation_config(raw)
    assert (sampling.temperature, sampling.top_k, sampling.residual_temperature) == (0.0, 20, 0.5)


@pytest.mark.parametrize(
    "bad",
    [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"top_k": -1}, {"repetition_penalty": 0.0}],
)
def test_impossible_settings_are_refused(bad):
    with pytest.raises(PromptError, match=next(iter(bad))):
        Sampling(**bad)
