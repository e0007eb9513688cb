"""Adapters in a running batch: applied to every projection, equal to merged weights, and blind to their neighbours."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.audio.resample import resample
from tests.training.adapters import CONFIG, merged, random_adapter
from tests.training.model.generation.test_frame_loop import TEXTS, run
from tests.training.model.prompting import prompt_for
from training.model.device import supports_bf16
from training.model.errors import CheckpointError
from training.model.generation.adapter import Adapter
from training.model.generation.finish_reason import FinishReason
from training.model.generation.frame_loop import FrameLoop, FrameRequest
from training.model.hub.hub import EMBEDDED_FOLDER
from training.model.lora_config import LoraConfig
from training.model.prompt.prompt import PromptHead, x_vector_prompt
from training.model.sampling_settings import Sampling
from training.model.voice_model import VoiceModel

NUM_FRAMES = 8
PROJECTIONS = (
    *(f"{stack}.layers.{{}}.self_attn.{one}_proj" for stack in ("model", "code_predictor.model") for one in "qkvo"),
    *(
        f"{stack}.layers.{{}}.mlp.{one}_proj"
        for stack in ("model", "code_predictor.model")
        for one in ("gate", "up", "down")
    ),
)
WIDE = LoraConfig(rank=16, alpha=32)
VOICE = EMBEDDED_FOLDER.parent / "voices" / "rufus.flac"
MAX_LOGIT_DIFFERENCE = 2e-4
"""Between an adapter beside float32 weights and one merged into them; logits of the embedded model reach 25, and 3e-5
was the largest difference seen."""


def new_loop(talker, config, num_slots=1, precision="fp32"):
    return FrameLoop(talker, config, precision=precision, num_slots=num_slots, cache_length=256)


@pytest.fixture(scope="module")
def voices(golden_model):
    """None and three adapters that differ: of all layers, of the talker's attention alone, and of another rank."""
    talker = golden_model.talker
    matrices = [
        random_adapter(talker, seed=1),
        random_adapter(talker, seed=2, only=r"model\..*self_attn"),
        random_adapter(talker, replace(CONFIG, rank=7, alpha=14), seed=3),
    ]
    return [({}, None), *((one, Adapter.pack(one, CONFIG.scale, talker)) for one in matrices)]


@pytest.fixture(scope="module")
def requests(golden_model, speaker, voices):
    """One take for each of them."""
    sampling = (Sampling(), Sampling(temperature=0, residual_temperature=0), Sampling(temperature=1.2), Sampling())
    return [
        FrameRequest(
            prompt=prompt_for(golden_model, text, streaming_text=index == 2),
            speaker=speaker * (index + 1),
            sampling=sampling[index],
            seed=200 + index,
            max_frames=NUM_FRAMES - index,
            adapter=voices[index][1],
        )
        for index, text in enumerate(TEXTS)
    ]


@pytest.fixture(scope="module")
def alone(golden_model, requests, voices):
    """Each take by itself with merged weights."""
    talker, config = golden_model.talker, golden_model.config
    loops = [new_loop(merged(talker, matrices), config) for matrices, _ in voices]
    takes = [replace(request, adapter=None) for request in requests]
    return [run(loop, [(0, 0, take)])[0][0] for loop, take in zip(loops, takes, strict=True)]


@given(order=st.permutations(range(4)), delays=st.lists(st.integers(0, 5), min_size=4, max_size=4))
@settings(max_examples=8, deadline=None)
def test_any_mix_of_voices_is_each_voice_alone_with_merged_weights(golden_model, requests, alone, order, delays):
    loop = new_loop(golden_model.talker, golden_model.config, num_slots=4)
    together, _ = run(loop, [(delays[slot], slot, requests[which]) for slot, which in enumerate(order)])
    for slot, which in enumerate(order):
        assert torch.equal(together[slot], alone[which])


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_an_adapter_of_a_single_projection_is_heard(golden_model, requests, projection):
    """Fused products hide their parts: an adapter that is loaded and never applied would pass every other check."""
    talker, config = golden_model.talker, golden_model.config
    matrices = random_adapter(talker, only=projection.format(0), size=8)
    assert len(matrices) == 2
    plain = replace(requests[0], adapter=None, sampling=Sampling(temperature=0, residual_temperature=0))
    adapted = replace(plain, adapter=Adapter.pack(matrices, CONFIG.scale, talker))
    found = run(new_loop(talker, config), [(0, 0, adapted)])[0][0]
    assert not torch.equal(found, run(new_loop(talker, config), [(0, 0, plain)])[0][0])
    assert torch.equal(found, run(new_loop(merged(talker, matrices), config), [(0, 0, plain)])[0][0])


@pytest.mark.parametrize("precision", ["fp32", "int8", "bf16"])
@pytest.mark.parametrize("fits_half", [False, True], ids=["any weights", "weights of 16 bits"])
def test_a_take_with_an_adapter_is_to_the_last_bit_what_it_is_alone(
    golden_model, requests, monkeypatch, precision, fits_half
):
    if precision == "bf16" and not supports_bf16(torch.device("cpu")):
        pytest.skip("this processor does not multiply bfloat16")
    talker = copy.deepcopy(golden_model.talker)
    talker = talker.bfloat16().float() if fits_half else talker

    def logits_of(joins):
        loop, seen = new_loop(talker, golden_model.config, 4, precision), []
        draw_next, first_row = loop._draw_next, loop._state.positions_B.data_ptr()

        def note(logits, state):
            if state.positions_B.data_ptr() == first_row:
                seen.append(logits[0].clone())
            return draw_next(logits, state)

        monkeypatch.setattr(loop, "_draw_next", note)
        codes, _ = run(loop, joins)
        return torch.stack(seen), codes[0]

    others = [(1, 2, requests[3]), (2, 1, requests[0]), (3, 3, requests[2])]
    for request in (requests[1], replace(requests[1], adapter=None)):
        first, expected = logits_of([(0, 0, request)])
        found, codes = logits_of([(0, 0, request), *others])
        # Where all slots are computed, admitting another take is noted once more.
        assert torch.equal(codes, expected)
        assert all(any(torch.equal(row, other) for other in found) for row in first)


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_a_narrow_base_carries_a_float_adapter(golden_model, requests, precision):
    if precision == "bf16" and not supports_bf16(torch.device("cpu")):
        pytest.skip("this processor does not multiply bfloat16")
    talker, config = golden_model.talker, golden_model.config
    greedy = replace(requests[1], adapter=None)
    large = Adapter.pack(random_adapter(talker, size=4), CONFIG.scale, talker)
    plain, adapted, again = (
        run(new_loop(talker, config, precision=precision), [(0, 0, replace(greedy, adapter=one))])[0][0]
        for one in (None, large, large)
    )
    assert not torch.equal(plain, adapted)
    assert torch.equal(adapted, again)


def test_a_slot_forgets_the_adapter_of_its_last_take(golden_model, requests, alone):
    loop = new_loop(golden_model.talker, golden_model.config, num_slots=2)
    run(loop, [(0, 0, requests[1]), (0, 1, requests[3])])
    again, _ = run(loop, [(0, 0, requests[0])])
    assert torch.equal(again[0], alone[0])


def test_an_adapter_of_another_model_is_refused(golden_model):
    talker = golden_model.talker
    matrices = random_adapter(talker)
    name = "model.layers.0.self_attn.q_proj"
    wrong = [
        {**matrices, f"{name}.lora_A.weight": torch.zeros(4, 3)},
        {key: value for key, value in matrices.items() if key != f"{name}.lora_B.weight"},
        {key.replace("layers.0", "layers.99"): value for key, value in matrices.items()},
        {f"codec_head.lora_{side}.weight": torch.zeros(4, 4) for side in "AB"},
        {},
    ]
    for one in wrong:
        with pytest.raises(CheckpointError, match="does not fit this model"):
            Adapter.pack(one, 1.0, talker)


def test_takes_of_the_embedded_model_differ_from_merged_weights_by_rounding_alone(monkeypatch):
    """A take without adapter and two by two adapters at once, to their ends, against each alone with its weights.

    The logits differ by rounding, so on some processor a draw on the very edge falls to the other side, and the take
    goes on from there by itself: the benchmark of adapters counts codes in 1,000 frames.
    """
    torch.set_num_threads(1)
    model = VoiceModel.load(EMBEDDED_FOLDER, precision="fp32", device="cpu")
    matrices = [{}, *(random_adapter(model.talker, WIDE, seed=seed) for seed in range(2))]
    takes = [mini_take(model, seed, one) for seed, one in enumerate(matrices)]
    loop = new_loop(model.talker, model.config, len(takes))
    beside = logits_drawn_from(loop, monkeypatch)
    together, reasons = run(loop, [(0, slot, take) for slot, take in enumerate(takes)])
    assert set(reasons.values()) == {FinishReason.EOS}
    assert sum(map(len, together.values())) > 150
    num_alike = 0
    for slot, (one, take) in enumerate(zip(matrices, takes, strict=True)):
        whole = new_loop(merged(model.talker, one, WIDE), model.config)
        expected = logits_drawn_from(whole, monkeypatch)
        codes = run(whole, [(0, 0, replace(take, adapter=None))])[0][0]
        shorter = min(len(codes), len(together[slot]))
        differs = (codes[:shorter] != together[slot][:shorter]).any(dim=1).nonzero()
        same = int(differs[0]) if len(differs) else shorter
        num_alike += same
        # While the batch is filled, it draws for the takes that are there already.
        found = [rows[slot] for rows in beside[len(takes) :] if len(rows) > slot][: min(same, len(expected) - 1)]
        assert found
        difference = torch.stack(found) - torch.cat(expected[1 : 1 + len(found)])
        assert difference.abs().max() < MAX_LOGIT_DIFFERENCE
    # Such draws are rare: most of what is said is the same.
    assert num_alike > 100


def mini_take(model, seed, matrices):
    """A take of the embedded model as the application asks for it, with the adapter that these matrices are."""
    tokenizer = model.text_tokenizer
    head = PromptHead(role_ids=tokenizer.role_ids, language="english", has_speaker=True)
    text = tokenizer.encode_text("The quick brown fox jumps over the lazy dog, again and again, until it is dark.")
    return FrameRequest(
        prompt=x_vector_prompt(model.config, head, text),
        speaker=embedding_of_a_sample(model),
        sampling=model.default_sampling,
        seed=seed,
        max_frames=120,
        adapter=Adapter.pack(matrices, WIDE.scale, model.talker) if matrices else None,
    )


def embedding_of_a_sample(model):
    samples, sample_rate = soundfile.read(VOICE, dtype="float32")
    resampled = resample(samples, sample_rate, model.speaker_sample_rate)
    return model.embed_speaker(torch.from_numpy(resampled))


def logits_drawn_from(loop, monkeypatch):
    """What a loop draws its first codes from, as it goes on."""
    kept, draw_next = [], loop._draw_next
    monkeypatch.setattr(loop, "_draw_next", lambda rows, state: (kept.append(rows.clone()), draw_next(rows, state))[1])
    return kept
