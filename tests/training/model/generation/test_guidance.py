"""Classifier-free guidance: both rows of a take, and what is drawn from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.single_take import Synthesizer
from tests.training.model.generation.tape import TapeRecorder
from tests.training.model.generation.test_adapter_batch import CONFIG, merged, random_adapter
from tests.training.model.generation.test_frame_loop import record_draws, run
from tests.training.model.prompting import prompt_for
from training.data.example import build_example
from training.loss import SpeechLoss
from training.model.generation.adapter import Adapter
from training.model.generation.frame_loop import FrameLoop, FrameRequest, Guidance
from training.model.generation.graphed_calls import KV_LENGTH_STEP, GraphedCalls
from training.model.generation.sampling import guide
from training.model.generation.take_batch import TakeBatch
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.generation.traced_calls import TraceRecorder
from training.model.prompt.prompt import unconditional_prompt
from training.model.sampling_settings import Sampling

TEXTS = ("Hello.", "This one is a good deal longer than the first.", "Yes?")
SETTINGS = (Sampling(), Sampling(temperature=1.3, top_k=0, top_p=0.8), Sampling(temperature=0, residual_temperature=0))
SCALES = (1.5, 3.0, 2.0)
NUM_FRAMES = 8


def guidance_of(model, scale):
    return Guidance(prompt=unconditional_prompt(model.config, model.text_tokenizer.role_ids), scale=scale)


@pytest.fixture(scope="module")
def requests(golden_model, speaker):
    """Three takes that differ in text, layout, sampling, seed, cap and scale."""
    return [
        FrameRequest(
            prompt=prompt_for(golden_model, text, streaming_text=index == 1),
            speaker=speaker * (index + 1),
            sampling=SETTINGS[index],
            seed=300 + index,
            max_frames=NUM_FRAMES - index,
            guidance=guidance_of(golden_model, SCALES[index]),
        )
        for index, text in enumerate(TEXTS)
    ]


def new_loop(model, num_slots=1, precision="fp32", *, guided=True):
    return FrameLoop(
        model.talker, model.config, precision=precision, num_slots=num_slots, cache_length=160, guided=guided
    )


@pytest.fixture(scope="module")
def alone(golden_model, requests):
    return [run(new_loop(golden_model), [(0, 0, request)])[0][0] for request in requests]


def test_logits_are_moved_away_from_those_of_the_second_row():
    logits = torch.tensor([[3.0, 1.0], [1.0, 2.0], [5.0, 0.0], [1.0, 1.0]])
    guided = guide(logits, torch.tensor([1.0, 1.0, 2.0, 2.0]))
    assert guided.tolist() == [[3.0, 1.0], [3.0, 1.0], [9.0, -1.0], [9.0, -1.0]]


def test_a_scale_of_one_changes_no_code(golden_model, requests):
    for request in requests:
        neutral = replace(request, guidance=replace(request.guidance, scale=1.0))
        plain = run(new_loop(golden_model, guided=False), [(0, 0, replace(request, guidance=None))])[0][0]
        assert torch.equal(run(new_loop(golden_model), [(0, 0, neutral)])[0][0], plain)


def test_another_scale_is_another_take(golden_model, requests, alone):
    for request, codes in zip(requests, alone, strict=True):
        other = replace(request, guidance=replace(request.guidance, scale=6.0))
        assert not torch.equal(run(new_loop(golden_model), [(0, 0, other)])[0][0], codes)


@given(order=st.permutations(range(3)), delays=st.lists(st.integers(0, 5), min_size=3, max_size=3))
@settings(max_examples=6, deadline=None)
def test_a_guided_take_in_any_company_is_the_take_alone(golden_model, requests, alone, order, delays):
    loop = new_loop(golden_model, num_slots=3)
    together, _ = run(loop, [(delays[slot], slot, requests[which]) for slot, which in enumerate(order)])
    for slot, which in enumerate(order):
        assert torch.equal(together[slot], alone[which])


def test_codes_are_drawn_from_what_both_prompts_say_of_the_same_frames(golden_model, requests, alone, monkeypatch):
    """Computed once more without a cache: each prompt with all frames of the take, by the loss's own network."""
    talker, config = golden_model.talker, golden_model.config
    seen = record_draws(monkeypatch)
    for request, codes in zip(requests, alone, strict=True):
        seen.clear()
        loop = new_loop(golden_model)
        run(loop, [(0, 0, request)])
        first, residual = [], []
        for prompt in (request.prompt, request.guidance.prompt):
            example = build_example(config, prompt, codes, request.speaker)
            with torch.inference_mode():
                hidden = talker(talker.embed_input(example.inputs.batched(), request.speaker.unsqueeze(0)))[0]
                before = hidden[:-1][example.is_answer_T[1:]]
                first.append(talker.codec_head(before))
                residual.append(SpeechLoss(talker).code_predictor_logits(codes, before))
        for settings_of, both in ((loop._state.first_draw, first), (loop._state.rest_draw, residual)):
            own, without = both
            expected = without + request.guidance.scale * (own - without)
            found = torch.stack([logits for settings, logits in seen if settings is settings_of])
            assert torch.equal(found[:, 0], found[:, 1])
            found = found[: expected[..., 0].numel(), 0].view_as(expected)
            if settings_of is loop._state.rest_draw:
                assert torch.allclose(found, expected, atol=1e-3)
                continue
            # Codes of codebook 0 that were used already have been made less likely, and control ids are forbidden.
            unused = torch.ones_like(expected, dtype=torch.bool)
            for frame in range(len(codes)):
                unused[frame, codes[:frame, 0]] = False
            unused &= found.isfinite()
            assert unused.sum() > 10 * len(codes)
            assert torch.allclose(found[unused], expected[unused], atol=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_calls_without_python_make_the_same_bits(golden_model, requests, precision):
    plain, traced = (new_loop(golden_model, num_slots=2, precision=precision) for _ in range(2))
    plain._graphs = GraphedCalls(None)
    for key in traced.usual_graphs():
        traced.capture(key)
    assert isinstance(traced._graphs.recorder, TraceRecorder)
    for seed in (4, 5):
        joins = [(0, 1, requests[0]), (3, 0, replace(requests[0], seed=seed))]
        expected, found = run(plain, joins)[0], run(traced, joins)[0]
        assert all(torch.equal(found[slot], expected[slot]) for slot in (0, 1))
        for key in traced.missed_graphs():
            traced.capture(key)
    assert traced.missed_graphs() == []


def test_replayed_frames_are_those_of_plain_calls(golden_model, requests):
    """As on a GPU, where all rows are computed for every frame."""
    recorder = TapeRecorder()
    replayed = FrameLoop(
        golden_model.talker,
        golden_model.config,
        num_slots=2,
        cache_length=2 * KV_LENGTH_STEP,
        guided=True,
        graph_recorder=recorder,
    )
    for key in replayed.usual_graphs():
        replayed.capture(key)
    num_captured = recorder.num_captured
    plain = new_loop(golden_model, num_slots=2)
    plain._graphs, plain._skips_empty_slots = GraphedCalls(None), False
    joins = [(0, 1, requests[0]), (3, 0, replace(requests[0], seed=4))]
    expected, found = run(plain, joins)[0], run(replayed, joins)[0]
    assert all(torch.equal(found[slot], expected[slot]) for slot in (0, 1))
    assert num_captured == recorder.num_captured == len(replayed.usual_graphs())
    assert replayed.missed_graphs() == []


def test_an_adapter_is_of_both_rows(golden_model, requests):
    talker = golden_model.talker
    matrices = random_adapter(talker, seed=1)
    adapted = replace(requests[0], adapter=Adapter.pack(matrices, CONFIG.scale, talker))
    found = run(new_loop(golden_model, num_slots=2), [(0, 1, adapted), (1, 0, requests[1])])[0][1]
    whole = FrameLoop(merged(talker, matrices), golden_model.config, cache_length=160, guided=True)
    assert torch.equal(found, run(whole, [(0, 0, requests[0])])[0][0])


def test_takes_of_a_model_with_guidance_are_guided(golden_model, speaker):
    request = TakeRequest(text="Hello there.", voice=VoicePrompt(speaker=speaker), seed=5, max_frames=10)
    model = replace(golden_model, guidance_scale=2.5)
    take = Synthesizer(model, consume=False).speak(request)
    assert not torch.equal(take.codes, Synthesizer(golden_model, consume=False).speak(request).codes)
    batch = TakeBatch(model, num_slots=2, cache_length=400, consume=False)
    batch.admit(1, batch.lay_out(request), request.voice)
    codes = []
    while 1 not in batch.free_slots:
        step = batch.step()
        codes += [step.codes_BQ[slot] for slot in step.spoke]
    assert torch.equal(torch.stack(codes), take.codes)
    assert len(step.codes_BQ) == 2


def test_a_freed_slot_shows_nothing_of_its_former_take(golden_model, requests, alone):
    loop = new_loop(golden_model)
    loop.admit(0, requests[1])
    loop.step()
    loop.release(0)
    assert torch.equal(run(loop, [(0, 0, requests[0])])[0][0], alone[0])
