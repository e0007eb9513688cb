"""Captured graphs, by a recorder that works on a processor. What only CUDA can show is in `test_cuda.py`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.training.model.generation.tape import TapeRecorder
from tests.training.model.prompting import prompt_for
from training.model.device import supports_bf16
from training.model.generation.frame_loop import FrameLoop, FrameRequest, TalkerKey
from training.model.generation.graphed_calls import KV_LENGTH_STEP, GraphedCalls
from training.model.generation.graphed_decoder import DecodeKey
from training.model.generation.take_batch import TakeBatch
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.generation.traced_calls import CannotTrace, TraceRecorder
from training.model.sampling_settings import Sampling
from training.model.voice_model import VoiceModel

OWN_SETTINGS = Sampling(temperature=1.2, top_k=0, top_p=0.8, residual_top_p=0.9)


def loop_of(model, recorder, num_slots=2, cache_length=2 * KV_LENGTH_STEP):
    loop = FrameLoop(
        model.talker, model.config, num_slots=num_slots, cache_length=cache_length, graph_recorder=recorder
    )
    if recorder is None:
        loop._graphs, loop._skips_empty_slots = GraphedCalls(None), False
    return loop


def request(model, speaker, seed, **settings):
    prompt = prompt_for(model, "A few words, and a few more.")
    return FrameRequest(prompt=prompt, speaker=speaker, seed=seed, **{"max_frames": 12, "min_frames": 12, **settings})


def run(loop, *joins):
    """Codes by slot of takes (step, slot, request)."""
    frames, number, waiting = {}, 0, sorted(joins, key=lambda join: join[:2])
    while waiting or len(loop.free_slots) < loop.num_slots:
        while waiting and waiting[0][0] <= number:
            _, slot, its = waiting.pop(0)
            loop.admit(slot, its)
        step = loop.step()
        for slot in step.spoke:
            frames.setdefault(slot, []).append(step.codes_BQ[slot].clone())
        number += 1
    return {slot: torch.stack(codes) for slot, codes in frames.items()}


def captured(loop):
    for key in loop.usual_graphs():
        loop.capture(key)
    return loop


def test_replayed_frames_are_those_of_plain_calls_and_none_needs_a_graph_that_is_missing(golden_model, speaker):
    joins = [(0, 1, request(golden_model, speaker, 3)), (4, 0, request(golden_model, 2 * speaker, 4))]
    plain = run(loop_of(golden_model, None), *joins)
    recorder = TapeRecorder()
    loop = captured(loop_of(golden_model, recorder))
    num_captured = recorder.num_captured
    replayed = run(loop, *joins)
    assert all(torch.equal(replayed[slot], plain[slot]) for slot in (0, 1))
    assert num_captured == recorder.num_captured == len(loop.usual_graphs()) == 2 + 2 * 2
    assert loop.missed_graphs() == []


def test_a_long_take_goes_from_one_length_to_the_next(golden_model, speaker):
    prompt = prompt_for(golden_model, "A sentence that goes on and on. " * 5)
    frames = KV_LENGTH_STEP + 10 - len(prompt.inputs)
    assert 10 < frames < KV_LENGTH_STEP
    one = FrameRequest(prompt=prompt, speaker=speaker, seed=5, max_frames=frames, min_frames=frames)
    loop = captured(loop_of(golden_model, TapeRecorder(), num_slots=1))
    plain = loop_of(golden_model, None, num_slots=1)
    plain._is_alone, plain._kv_length_step = False, KV_LENGTH_STEP
    assert torch.equal(run(loop, (0, 0, one))[0], run(plain, (0, 0, one))[0])
    assert loop.missed_graphs() == []


def test_settings_of_ones_own_are_not_captured_while_they_are_spoken_but_afterwards(golden_model, speaker):
    own = [(0, 0, request(golden_model, speaker, 6, sampling=OWN_SETTINGS)), (0, 1, request(golden_model, speaker, 7))]
    plain = run(loop_of(golden_model, None), *own)
    recorder = TapeRecorder()
    loop = captured(loop_of(golden_model, recorder))
    before = recorder.num_captured
    first = run(loop, *own)
    assert recorder.num_captured == before
    missed = loop.missed_graphs()
    assert any(isinstance(key, TalkerKey) for key in missed)
    for key in missed:
        loop.capture(key)
    assert loop.missed_graphs() == []
    again = run(loop, *own)
    assert loop.missed_graphs() == []
    assert all(torch.equal(one[slot], plain[slot]) for one in (first, again) for slot in (0, 1))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("num_slots", [1, 3])
def test_calls_without_python_make_the_same_bits(golden_folder, speaker, precision, num_slots):
    model = VoiceModel.load(golden_folder, precision=precision, device="cpu")
    loops = [
        FrameLoop(model.talker, model.config, precision=precision, num_slots=num_slots, cache_length=300)
        for _ in range(2)
    ]
    plain, traced = loops
    plain._graphs = GraphedCalls(None)
    captured(traced)
    assert isinstance(traced._graphs.recorder, TraceRecorder)
    # Other takes each time, also with other settings that need the same operations.
    settings = (Sampling(), Sampling(temperature=0.4, residual_temperature=1.3, top_k=7), Sampling(), OWN_SETTINGS)
    for turn, sampling in enumerate(settings):
        joins = [
            (2 * slot, slot, request(model, (slot + 1) * speaker, 10 * turn + slot, sampling=sampling))
            for slot in range(num_slots)
        ]
        expected, found = run(plain, *joins), run(traced, *joins)
        assert all(torch.equal(found[slot], expected[slot]) for slot in range(num_slots))
        for key in traced.missed_graphs():
            traced.capture(key)
    assert traced.num_graph_bytes > 0


def test_operations_that_cannot_be_traced_are_called_from_python(golden_model, speaker):
    class Lacking(TraceRecorder):
        def capture(self, call, memory):
            raise CannotTrace("no such operation")

    one = request(golden_model, speaker, 8)
    loop = captured(loop_of(golden_model, Lacking(), num_slots=1))
    assert torch.equal(run(loop, (0, 0, one))[0], run(loop_of(golden_model, None, num_slots=1), (0, 0, one))[0])
    assert loop.missed_graphs() == [], "it would be tried again and again"


def test_a_loop_in_bfloat16_speaks_with_or_without_graphs(golden_folder, speaker):
    if not supports_bf16(torch.device("cpu")):
        pytest.skip("this processor does not multiply bfloat16")
    model = VoiceModel.load(golden_folder, precision="bf16", device="cpu")
    plain, traced = (
        FrameLoop(model.talker, model.config, precision="bf16", num_slots=1, cache_length=300) for _ in range(2)
    )
    plain._graphs = GraphedCalls(None)
    one = request(model, speaker, 9)
    assert torch.equal(run(captured(traced), (0, 0, one))[0], run(plain, (0, 0, one))[0])


def test_sound_without_python_is_the_same_to_the_last_bit(golden_model):
    batch, plain = (TakeBatch(golden_model, num_slots=3, cache_length=256, consume=False) for _ in range(2))
    generator = torch.Generator().manual_seed(4)
    for turn in range(2):
        for slot in range(3):
            for one in (batch, plain):
                one._start_decoder(slot, VoicePrompt())
        for slots, frames in (([0], 1), ([0, 1], 2), ([2], 4), ([0, 2], 4), ([0], 1)):
            codes = torch.randint(0, 64, (len(slots), frames, 16), generator=generator)
            assert np.array_equal(batch.decode(slots, codes), plain.decode(slots, codes))
        if turn == 0:
            missed = batch.missed_graphs()
            assert missed[0] == DecodeKey(1, 1), "it was missed most"
            assert batch.capture(missed) == len(missed) == 4
    assert batch.missed_graphs() == []
    assert all(parameter.requires_grad for parameter in golden_model.speech_tokenizer.parameters())


@pytest.fixture(scope="module")
def batch(golden_model):
    made = TakeBatch(
        golden_model, num_slots=3, cache_length=256, consume=False, graph_recorders=(TapeRecorder(), TapeRecorder())
    )
    keys = [key for key in made.usual_graphs() if not isinstance(key, DecodeKey) or key.num_frames <= 4]
    assert made.capture(keys) == len(keys)
    return made


def test_a_captured_decoder_serves_any_slots_and_continues_their_streams(batch):
    codec = batch.model.speech_tokenizer
    codes = torch.randint(0, 64, (3, 8, 16), generator=torch.Generator().manual_seed(2))
    for slot in range(3):
        batch._start_decoder(slot, VoicePrompt())
    pieces = {slot: [] for slot in range(3)}
    for slots, frames in (([0], 1), ([2, 0], 4), ([1], 4), ([0, 1, 2], 2), ([2], 2), ([0], 1), ([1], 2)):
        start = [sum(len(piece) for piece in pieces[slot]) // codec.config.decode_upsample_rate for slot in slots]
        chunk = torch.stack([codes[slot, at : at + frames] for slot, at in zip(slots, start, strict=True)])
        for slot, samples in zip(slots, batch.decode(slots, chunk), strict=True):
            pieces[slot].append(samples.copy())
    whole = codec.decode(codes).numpy()
    for slot in range(3):
        assert np.abs(np.concatenate(pieces[slot]) - whole[slot]).max() < 1e-4
    assert batch.missed_graphs() == []


def test_a_chunk_without_a_graph_is_decoded_all_the_same(batch):
    codes = torch.randint(0, 64, (1, 5, 16), generator=torch.Generator().manual_seed(3))
    batch._start_decoder(0, VoicePrompt())
    samples = batch.decode([0], codes)
    assert np.abs(samples - batch.model.speech_tokenizer.decode(codes).numpy()).max() < 1e-4
    assert batch.missed_graphs() == [DecodeKey(1, 5)]
    assert batch.capture(batch.missed_graphs()) == 1
    assert batch.missed_graphs() == []


def test_graphs_keep_to_their_memory(golden_model):
    batch = TakeBatch(
        golden_model, num_slots=1, cache_length=256, consume=False, graph_recorders=(TapeRecorder(), TapeRecorder())
    )
    seen = []
    keys = batch.usual_graphs()
    assert batch.capture(keys, lambda done, of: seen.append((done, of)), max_bytes=3 * 2**20) == 3
    assert seen == [(1, len(keys)), (2, len(keys)), (3, len(keys))]
    request_of = TakeRequest(
        text="Hello.", voice=VoicePrompt(speaker=torch.zeros(golden_model.config.talker.hidden_size)), max_frames=3
    )
    batch.admit(0, batch.lay_out(request_of), request_of.voice)
    assert batch.step().spoke == (0,)


def test_memory_that_runs_out_while_capturing_is_no_error(golden_model):
    class Full(TapeRecorder):
        def capture(self, call, memory):
            if self.num_captured:
                raise torch.OutOfMemoryError
            return super().capture(call, memory)

    batch = TakeBatch(golden_model, num_slots=1, cache_length=256, consume=False, graph_recorders=(Full(), Full()))
    assert batch.capture(batch.usual_graphs()) == 1


def test_without_a_recorder_everything_is_called():
    calls, counted = GraphedCalls(None), []
    calls.capture("key", lambda: counted.append(1), ())
    calls.run("key", lambda: counted.append(2))
    assert counted == [2]
    assert not calls.missed
