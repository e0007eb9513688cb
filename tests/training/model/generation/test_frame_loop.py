from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.model.prompting import prompt_for
from training.data.example import build_example
from training.loss import SpeechLoss
from training.model.errors import PromptError
from training.model.generation.finish_reason import FinishReason
from training.model.generation.frame_loop import FrameLoop, FrameRequest
from training.model.generation.sampling import draw
from training.model.sampling_settings import Sampling

TEXTS = ("Hello.", "This one is a good deal longer than the first.", "Yes?", "One, two, three!")
NUM_FRAMES = 8


@pytest.fixture(scope="module")
def requests(golden_model, speaker):
    """Four takes that differ in text, layout, sampling, seed and cap."""
    settings_of = (
        Sampling(),
        Sampling(temperature=1.3, top_k=0, top_p=0.8, residual_top_p=0.9),
        Sampling(temperature=0.0, residual_temperature=0.0),
        Sampling(top_k=5, repetition_penalty=1.4),
    )
    return [
        FrameRequest(
            prompt=prompt_for(golden_model, text, streaming_text=index % 2 == 1),
            speaker=speaker * (index + 1),
            sampling=sampling,
            seed=100 + index,
            max_frames=NUM_FRAMES - index,
        )
        for index, (text, sampling) in enumerate(zip(TEXTS, settings_of, strict=True))
    ]


def new_loop(model, num_slots=1, precision="fp32"):
    return FrameLoop(model.talker, model.config, precision=precision, num_slots=num_slots, cache_length=160)


def run(loop, joins):
    """Decode takes that join at given steps; `joins` is a list of (step, slot, request)."""
    frames, reasons = {}, {}
    waiting, step_number = sorted(joins, key=lambda join: join[0]), 0
    while waiting or len(loop.free_slots) < loop.num_slots:
        while waiting and waiting[0][0] <= step_number:
            _, slot, request = waiting.pop(0)
            loop.admit(slot, request)
            frames[slot] = []
        step = loop.step()
        for slot in step.spoke:
            frames[slot].append(step.codes_BQ[slot])
        reasons.update(step.finished)
        step_number += 1
    return {slot: torch.stack(codes) for slot, codes in frames.items()}, reasons


def record_draws(monkeypatch):
    """A list that gets the settings and logits of every draw from now on."""
    seen = []

    def recording_draw(logits, uniform, settings):
        seen.append((settings, logits.clone()))
        return draw(logits, uniform, settings)

    monkeypatch.setattr("training.model.generation.frame_loop.draw", recording_draw)
    return seen


@pytest.fixture(scope="module")
def alone(golden_model, requests):
    loop = new_loop(golden_model)
    return [run(loop, [(0, 0, request)])[0][0] for request in requests]


@given(order=st.permutations(range(4)), delays=st.lists(st.integers(0, 5), min_size=4, max_size=4))
@settings(max_examples=8, deadline=None)
def test_a_take_in_any_company_is_the_take_alone(golden_model, requests, alone, order, delays):
    loop = new_loop(golden_model, num_slots=4)
    joins = [(delays[slot], slot, requests[which]) for slot, which in enumerate(order)]
    together, _ = run(loop, joins)
    for slot, which in enumerate(order):
        assert torch.equal(together[slot], alone[which])


def test_int8_takes_do_not_depend_on_their_company_either(golden_model, requests):
    single = [run(new_loop(golden_model, precision="int8"), [(0, 0, request)])[0][0] for request in requests]
    joins = [(slot, slot, request) for slot, request in enumerate(requests)]
    together, _ = run(new_loop(golden_model, num_slots=4, precision="int8"), joins)
    assert all(torch.equal(together[slot], codes) for slot, codes in enumerate(single))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_empty_slots_cost_nothing_and_change_no_bit(golden_model, requests, monkeypatch, precision):
    """What every draw of a take is made from, in company that comes and goes, is to the last bit what it is alone."""
    # Published weights fit 16 bits; those of this checkpoint do not.
    talker = copy.deepcopy(golden_model.talker).bfloat16().float()

    def logits_of(joins):
        seen, num_rows = [], set()
        loop = FrameLoop(talker, golden_model.config, precision=precision, num_slots=4, cache_length=160)
        draw_next = loop._draw_next

        def note(logits, state):
            num_rows.add(len(logits))
            if state.positions_B.data_ptr() == first_row:
                seen.append(logits[0].clone())
            return draw_next(logits, state)

        first_row = loop._state.positions_B.data_ptr()
        monkeypatch.setattr(loop, "_draw_next", note)
        run(loop, joins)
        return torch.stack(seen), num_rows

    alone, rows_alone = logits_of([(0, 0, requests[0])])
    together, rows_together = logits_of([(0, 0, requests[0]), (1, 2, requests[3]), (2, 1, requests[1])])
    assert torch.equal(alone, together[: len(alone)])
    assert (rows_alone, max(rows_together)) == ({1}, 3)


def test_a_freed_slot_shows_nothing_of_its_former_take(golden_model, requests, alone):
    loop = new_loop(golden_model)
    loop.admit(0, requests[1])
    loop.step()
    loop.release(0)
    assert torch.equal(run(loop, [(0, 0, requests[0])])[0][0], alone[0])


def test_the_seed_decides_the_take(golden_model, requests, alone):
    loop = new_loop(golden_model)
    again, _ = run(loop, [(0, 0, requests[0])])
    other, _ = run(loop, [(0, 0, replace(requests[0], seed=1))])
    assert torch.equal(again[0], alone[0])
    assert not torch.equal(other[0], alone[0])


def test_generation_sees_the_logits_of_training(golden_model, requests, alone, monkeypatch):
    """Teacher-forcing a take gives back the logits it was drawn from: prompt, cache and loss agree."""
    talker, config = golden_model.talker, golden_model.config
    for request, codes in zip(requests, alone, strict=True):
        seen = []
        loop = new_loop(golden_model)
        draw_next = loop._draw_next
        monkeypatch.setattr(
            loop,
            "_draw_next",
            lambda logits, state, draw=draw_next, kept=seen: (kept.append(logits.clone()), draw(logits, state))[1],
        )
        run(loop, [(0, 0, request)])
        example = build_example(config, request.prompt, codes, request.speaker)
        with torch.inference_mode():
            hidden = talker(talker.embed_input(example.inputs.batched(), request.speaker.unsqueeze(0)))[0]
            logits = talker.codec_head(hidden[len(request.prompt.inputs) - 1 :])
        generated = torch.cat(seen)
        assert torch.allclose(generated, logits[: len(generated)], atol=1e-4)


def test_the_code_predictor_sees_the_logits_of_training(golden_model, requests, alone, monkeypatch):
    """All fifteen residual codebooks, teacher-forced, are what generation drew from."""
    talker, config = golden_model.talker, golden_model.config
    seen = record_draws(monkeypatch)
    for request, codes in zip(requests, alone, strict=True):
        seen.clear()
        loop = new_loop(golden_model)
        run(loop, [(0, 0, request)])
        residual = torch.cat([logits for settings, logits in seen if settings is loop._state.rest_draw])
        example = build_example(config, request.prompt, codes, request.speaker)
        with torch.inference_mode():
            hidden = talker(talker.embed_input(example.inputs.batched(), request.speaker.unsqueeze(0)))[0]
            before = hidden[:-1][example.is_answer_T[1:]]
            expected = SpeechLoss(talker).code_predictor_logits(codes, before)
        assert torch.allclose(residual.view_as(expected), expected, atol=1e-4)


def test_the_cap_ends_a_take(golden_model, requests):
    _, reasons = run(new_loop(golden_model), [(0, 0, replace(requests[0], max_frames=3))])
    assert reasons == {0: FinishReason.LENGTH}


def test_speech_cannot_end_before_the_minimum(golden_model, requests):
    greedy = replace(requests[2], max_frames=40)
    ended, reasons = run(new_loop(golden_model), [(0, 0, greedy)])
    assert reasons == {0: FinishReason.EOS}
    longer, _ = run(new_loop(golden_model), [(0, 0, replace(greedy, min_frames=len(ended[0]) + 5))])
    assert len(longer[0]) >= len(ended[0]) + 5


def test_too_long_for_the_cache_is_refused_before_anything_runs(golden_model, requests):
    loop = new_loop(golden_model)
    with pytest.raises(PromptError, match="shorter"):
        loop.admit(0, replace(requests[0], max_frames=1000))
    assert loop.free_slots == (0,)


def test_where_weights_lie_in_memory_changes_no_code(golden_model, requests, monkeypatch):
    codes = run(new_loop(golden_model), [(0, 0, requests[0])])[0][0]
    monkeypatch.setattr("training.model.generation.frame_loop.MIN_WEIGHT_BYTES", 0)
    assert torch.equal(run(new_loop(golden_model), [(0, 0, requests[0])])[0][0], codes)


@pytest.mark.parametrize("small_weight", [0, 10**9])
def test_int8_logits_stay_close_to_fp32(golden_model, requests, monkeypatch, small_weight):
    """With the kernel of large weights and with that of small ones.

    Root mean square error of the logits under 5 % of their spread, on random weights (measured: about 2 %).
    """
    monkeypatch.setattr("training.model.network.packed_linear.SMALL_WEIGHT", small_weight)
    logits = {}
    for precision in ("fp32", "int8"):
        loop = new_loop(golden_model, precision=precision)
        draw_next = loop._draw_next
        monkeypatch.setattr(
            loop,
            "_draw_next",
            lambda found, state, name=precision, draw=draw_next: (
                logits.setdefault(name, found.clone()),
                draw(found, state),
            )[1],
        )
        loop.admit(0, requests[1])
    error = (logits["int8"] - logits["fp32"]).square().mean().sqrt()
    assert error < 0.05 * logits["fp32"].std()
