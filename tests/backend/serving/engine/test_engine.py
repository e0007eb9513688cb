from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from backend.errors import PromptError
from backend.serving.engine import engine as engine_module
from backend.serving.engine.engine import Engine
from backend.serving.errors import EngineBusy, EngineClosed, TakeFailed
from tests.backend.serving.conftest import NUM_SLOTS, UNMARKED, codes_of, take_of, wait_until
from tests.golden import GOLDEN_CHECKPOINT
from tests.training.model.generation.tape import TapeRecorder
from training.allocator import return_freed_memory
from training.model.generation.finish_reason import FinishReason
from training.model.generation.graphed_calls import GraphedCalls
from training.model.generation.take_request import TakeRequest
from training.model.generation.traced_calls import _GRAPH_BYTES
from training.model.sampling_settings import Sampling
from training.model.voice_model import VoiceModel

TEXTS = ("Hello.", "This one is a good deal longer than the first.", "Yes?", "One, two, three!")
SAMPLINGS = (
    None,
    Sampling(temperature=1.3, top_k=0, top_p=0.8),
    Sampling(temperature=0.0, residual_temperature=0.0),
    Sampling(top_k=200),
)


def is_idle(engine):
    now = engine.statistics()
    return now.num_active == 0 and now.num_waiting == 0 and len(engine._batch.free_slots) == engine.num_slots


@pytest.fixture(scope="module")
def varied_requests(voice, in_context_voice):
    return [
        TakeRequest(
            text=TEXTS[n % 4],
            # Long references make long prompts: attention has to span more than one of its steps.
            voice=in_context_voice if n % 5 == 4 else voice,
            seed=100 + n,
            sampling=SAMPLINGS[n % 4],
            streaming_text=n % 3 == 1,
            max_frames=6 + n % 7,
        )
        for n in range(12)
    ]


@pytest.fixture(scope="module")
def alone(engine, varied_requests):
    return [take_of(engine.submit(request)) for request in varied_requests]


@pytest.mark.parametrize("seed", range(3))
def test_takes_in_any_company_are_those_spoken_alone(engine, varied_requests, alone, seed):
    randomly = random.Random(seed)
    order = randomly.sample(range(len(varied_requests)), len(varied_requests))
    together = {}
    for which in order:
        together[which] = engine.submit(varied_requests[which], is_live=randomly.random() < 0.5)
        if randomly.random() < 0.4:
            # The others are somewhere in the middle when the next one arrives.
            next(together[randomly.choice(list(together))], None)
    for which, handle in together.items():
        for _ in handle:
            pass
        assert handle.finish_reason is alone[which].finish_reason
        assert torch.equal(codes_of(handle), alone[which].codes), which


def test_what_is_streamed_is_the_whole_take(engine, varied_requests, alone):
    handles = [engine.submit(request) for request in varied_requests]
    for handle, whole in zip(handles, alone, strict=True):
        chunks = list(handle)
        # Chunks are as long as there was time for. The random weights drive snakes to where float32 resolves a sine to
        # 1e-4, so that other lengths round to other samples: 1.05e-4 was seen.
        assert np.abs(np.concatenate(chunks) - whole.waveform).max() < 2e-4
    frame = engine.model.speech_tokenizer.config.decode_upsample_rate
    decoded = engine.model.speech_tokenizer.decode(alone[0].codes.unsqueeze(0))[0].numpy()
    assert len(alone[0].waveform) == len(alone[0].codes) * frame
    assert np.abs(decoded - alone[0].waveform).max() < 1e-4


def test_in_context_sound_continues_the_reference(engine, in_context_voice, request_of):
    take = take_of(engine.submit(replace(request_of, voice=in_context_voice)))
    codes = torch.cat((in_context_voice.reference_codes, take.codes)).unsqueeze(0)
    whole = engine.model.speech_tokenizer.decode(codes)[0].numpy()
    assert np.abs(whole[len(whole) - len(take.waveform) :] - take.waveform).max() < 1e-4


def test_the_first_chunk_is_one_frame_and_later_ones_grow(engine, request_of):
    frame = engine.model.speech_tokenizer.config.decode_upsample_rate
    sizes = [len(chunk) // frame for chunk in engine.submit(replace(request_of, sampling=Sampling(top_k=0)))]
    assert sizes[:3] == [1, 2, 4]


@pytest.mark.parametrize("way", ["close", "callback"])
def test_a_listener_who_leaves_frees_the_slot(engine, request_of, way):
    left = threading.Event()
    cancelled_before = engine.statistics().num_cancelled_total
    handle = engine.submit(replace(request_of, max_frames=400), cancelled=left.is_set)
    next(handle)
    if way == "callback":
        left.set()
        list(handle)
        assert handle.finish_reason is FinishReason.CANCELLED
    else:
        handle.close()
        assert list(handle) == []
    wait_until(lambda: is_idle(engine))
    ended = engine.statistics()
    # A tiny random model may also have ended by itself in the meantime, but then it was not cancelled twice.
    assert ended.num_cancelled_total - cancelled_before <= 1


def test_a_cancelled_take_is_gone_before_the_next_frame(new_engine, request_of, gate):
    with new_engine(num_slots=1) as engine:
        cancelled = engine.submit(replace(request_of, max_frames=400))
        blocked = engine.submit(request_of, cancelled=gate)
        gate.wait_until_reached()
        cancelled.close()
        # Its slot is needed: with it, the take behind it ends.
        gate.open()
        assert len(take_of(blocked).codes) > 0
        wait_until(lambda: is_idle(engine))


def test_more_than_the_line_holds_is_turned_away(new_engine, request_of, gate):
    with new_engine(num_slots=1, max_waiting=2) as engine:
        first = engine.submit(request_of, cancelled=gate)
        gate.wait_until_reached()
        others = [engine.submit(request_of)]
        with pytest.raises(EngineBusy, match="waiting") as refused:
            others.extend(engine.submit(request_of) for _ in range(4))
        # Who speaks is not counted among those who wait.
        assert len(others) == 2
        assert refused.value.retry_after_seconds > 0
        further_piece = engine.submit(request_of, bypass_admission=True)
        gate.open()
        takes = [take_of(handle) for handle in (first, *others, further_piece)]
        assert all(torch.equal(take.codes, takes[0].codes) for take in takes)
        assert engine.statistics().num_refused_total == 1


def test_a_crowd_as_large_as_the_slots_and_the_line_finds_room(new_engine, request_of, gate):
    with new_engine(num_slots=4, max_waiting=1) as engine:
        # All of them come before the engine has looked even once.
        handles = [engine.submit(request_of, cancelled=gate) for _ in range(5)]
        with pytest.raises(EngineBusy):
            engine.submit(request_of)
        gate.open()
        assert all(len(take_of(handle).codes) > 0 for handle in handles)
        assert len(take_of(engine.submit(request_of)).codes) > 0


def test_who_is_needed_first_is_spoken_first(new_engine, request_of, gate):
    with new_engine(num_slots=1) as engine:
        first = engine.submit(request_of, cancelled=gate)
        gate.wait_until_reached()
        late = engine.submit(request_of, needed_in_seconds=50)
        soon = engine.submit(request_of, needed_in_seconds=20)
        gate.open()
        for handle in (first, late, soon):
            take_of(handle)
        assert soon.clock.began < late.clock.began


def test_what_cannot_be_spoken_is_refused_at_once(engine, request_of, voice):
    for change, words in (
        ({"text": " "}, "no text"),
        ({"max_frames": 100_000}, "shorter"),
        ({"voice": replace(voice, speaker=torch.full_like(voice.speaker, torch.nan))}, "fit"),
        ({"voice": replace(voice, speaker=torch.zeros(3))}, "fit"),
        ({"voice": replace(voice, reference_codes=torch.full((4, 16), 99), reference_text="a")}, "codes"),
        ({"voice": replace(voice, reference_codes=torch.zeros(4, 3), reference_text="a")}, "codebooks"),
    ):
        with pytest.raises(PromptError, match=words):
            engine.submit(replace(request_of, **change))


def test_a_take_that_cannot_begin_leaves_the_others_alone(engine, request_of, monkeypatch):
    expected = take_of(engine.submit(request_of)).codes
    prefill = engine._batch.loop._main.prefill

    def fail_on_long_prompts(x_TD, slot, adapted):
        if len(x_TD) > 60:
            raise RuntimeError("out of memory")
        return prefill(x_TD, slot, adapted)

    monkeypatch.setattr(engine._batch.loop._main, "prefill", fail_on_long_prompts)
    good = [engine.submit(request_of) for _ in range(3)]
    bad = engine.submit(replace(request_of, text="This is rather long. " * 6))
    good.append(engine.submit(request_of))
    with pytest.raises(TakeFailed, match="log"):
        take_of(bad)
    assert all(torch.equal(take_of(handle).codes, expected) for handle in good)
    assert engine.is_healthy


def test_a_failed_round_ends_its_takes_and_the_next_ones_work(engine, request_of, monkeypatch):
    expected = take_of(engine.submit(request_of)).codes
    step = engine._batch.loop.step

    def fail_once():
        monkeypatch.setattr(engine._batch.loop, "step", step)
        raise RuntimeError("the device had a hiccup")

    monkeypatch.setattr(engine._batch.loop, "step", fail_once)
    with pytest.raises(TakeFailed):
        take_of(engine.submit(request_of))
    assert torch.equal(take_of(engine.submit(request_of)).codes, expected)
    wait_until(lambda: is_idle(engine))
    assert engine.is_healthy


def test_closing_ends_what_runs_and_what_waits(new_engine, request_of, gate):
    engine = new_engine(num_slots=1)
    running = engine.submit(replace(request_of, max_frames=400), cancelled=gate)
    gate.wait_until_reached()
    waiting = engine.submit(request_of)
    closing = threading.Thread(target=engine.close)
    closing.start()
    wait_until(lambda: engine._is_closed)
    gate.open()
    closing.join()
    for handle in (running, waiting):
        with pytest.raises(EngineClosed):
            take_of(handle)
    with pytest.raises(EngineClosed):
        engine.submit(request_of)
    engine.close()
    assert not engine.is_healthy
    assert not engine._thread.is_alive()


def test_sixty_clients_that_disconnect_at_random_leave_nothing_behind(engine, request_of):
    before = engine.statistics()

    def listen(number):
        randomly = random.Random(number)
        handle = engine.submit(replace(request_of, seed=number, max_frames=30), is_live=randomly.random() < 0.7)
        for _ in range(randomly.randrange(4)):
            if next(handle, None) is None:
                break
        if randomly.random() < 0.7:
            handle.close()
            return 0
        return len(take_of(handle).codes)

    with ThreadPoolExecutor(12) as listeners:
        lengths = list(listeners.map(listen, range(60)))

    def num_ended():
        now = engine.statistics()
        return now.num_finished_total + now.num_cancelled_total + now.num_failed_total

    # A take that was cancelled in the queue is counted just after it has left it.
    num_before = before.num_finished_total + before.num_cancelled_total + before.num_failed_total
    wait_until(lambda: is_idle(engine) and num_ended() >= num_before + 60)
    after = engine.statistics()
    assert any(lengths)
    assert after.num_takes_total - before.num_takes_total == num_ended() - num_before == 60
    assert after.num_failed_total == before.num_failed_total
    assert engine._batch._preparing == {}


def test_an_idle_engine_uses_no_processor(engine):
    wait_until(lambda: is_idle(engine))
    assert engine._thread.ident is not None
    clock = time.pthread_getcpuclockid(engine._thread.ident)
    before = time.clock_gettime(clock)
    time.sleep(0.5)
    assert time.clock_gettime(clock) - before < 0.05


def test_statistics_count(engine, request_of):
    before = engine.statistics()
    takes = [take_of(handle) for handle in [engine.submit(request_of) for _ in range(NUM_SLOTS)]]
    wait_until(lambda: is_idle(engine))
    after = engine.statistics()
    assert after.num_finished_total - before.num_finished_total == NUM_SLOTS
    assert after.num_frames_total - before.num_frames_total == sum(len(take.codes) for take in takes)
    assert after.num_steps_total > before.num_steps_total
    assert after.busy_seconds_total > before.busy_seconds_total


def test_a_take_alone_has_the_same_samples_each_time(new_engine, request_of, in_context_voice):
    request = replace(request_of, voice=in_context_voice, max_frames=40)
    with new_engine(num_slots=1) as engine:
        # The first time the reference is still to be read when frames come, and then it is known.
        first, again = (take_of(engine.submit(request)).waveform for _ in range(2))
        take_of(engine.submit(request_of))
        assert np.array_equal(first, again)
        assert np.array_equal(take_of(engine.submit(request)).waveform, first)


def test_an_idle_engine_returns_what_was_freed(new_engine, monkeypatch):
    """Eight streams once left half a gigabyte behind, for good. How much goes back is tested with the allocator."""
    monkeypatch.setattr(engine_module, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(engine_module, "RETURN_SECONDS", 0.01)
    num_returns = 0

    def return_and_count() -> None:
        nonlocal num_returns
        return_freed_memory()
        num_returns += 1

    monkeypatch.setattr(engine_module, "return_freed_memory", return_and_count)
    with new_engine():
        wait_until(lambda: num_returns > 1)


def test_it_says_what_it_holds(new_engine, request_of):
    with new_engine() as engine:
        wait_until(lambda: not engine._batch.later_graphs())
        empty = engine.num_bytes()
        handle = engine.submit(request_of)
        wait_until(lambda: handle.is_over)
        unread = engine.num_bytes()
        spoken = np.concatenate(list(handle))
        assert unread == {**empty, "audio_buffers": spoken.nbytes}
        assert engine.num_bytes() == empty
    parameters = sum(one.nbytes for one in engine.model.talker.parameters())
    assert empty["weights"] > parameters
    talker = engine.model.config.talker
    num_kept = 2 * talker.num_key_value_heads * talker.head_dim * talker.num_hidden_layers
    assert empty["kv_caches"] > 4 * NUM_SLOTS * 600 * num_kept


@pytest.fixture
def on_tapes(monkeypatch):
    """Engines made meanwhile capture graphs as on CUDA."""
    monkeypatch.setattr(GraphedCalls, "on", lambda _: GraphedCalls(TapeRecorder()))
    monkeypatch.setattr(engine_module, "IDLE_SECONDS", 0.2)


def test_an_engine_has_its_graphs_before_the_first_take_and_captures_others_when_idle(on_tapes, new_engine, voice):
    usual = TakeRequest(text="Hello.", voice=voice, seed=1, max_frames=6)
    own = replace(usual, sampling=SAMPLINGS[1])
    with new_engine(num_slots=1) as engine:
        before = engine.num_bytes()["graphs"]
        assert before > 0
        take_of(engine.submit(usual))
        assert not engine._batch.missed_graphs()
        first = take_of(engine.submit(own))
        wait_until(lambda: engine.num_bytes()["graphs"] > before and not engine._batch.missed_graphs())
        assert torch.equal(take_of(engine.submit(own)).codes, first.codes)


def test_graphs_for_takes_beside_each_other_are_captured_when_an_engine_was_made_and_nobody_speaks():
    # Of int8: only where kernels are batch-invariant are there others than for all slots.
    model = VoiceModel.load(GOLDEN_CHECKPOINT, precision="int8", device="cpu")
    with Engine(model, num_slots=3, cache_length=600, mark=UNMARKED) as engine:
        wait_until(lambda: not engine._batch.later_graphs())
        assert engine._batch.num_graph_bytes == 3 * _GRAPH_BYTES


def test_on_a_processor_one_sentence_waits_for_no_graph_and_the_next_one_has_it(new_engine, request_of):
    with new_engine(num_slots=1) as engine:
        first = take_of(engine.submit(request_of))
        assert engine._batch.num_graph_bytes == 0
        second = take_of(engine.submit(request_of))
        assert engine._batch.num_graph_bytes > 0
        assert torch.equal(first.codes, second.codes)
