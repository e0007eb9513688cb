"""Sound beside the frame loop is the sound in step with it; what there is no time for is not lost."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from backend.serving.engine import codec_worker as sound_maker
from backend.serving.engine.codec_worker import AudioDecodeWorker, DecodeBatch
from backend.serving.engine.frame_pace import PaceMeter
from backend.serving.engine.running_take import RunningTake
from backend.serving.engine.statistics import EngineStatistics
from backend.serving.engine.take_stream import TakeStream
from training.model.generation.finish_reason import FinishReason
from training.model.generation.take_batch import TakeBatch
from training.model.generation.take_request import VoicePrompt

NUM_FRAMES = 12


@pytest.fixture
def batch(tiny_model):
    made = TakeBatch(tiny_model, num_slots=2, cache_length=64, consume=False)
    for slot in range(made.num_slots):
        made._start_decoder(slot, VoicePrompt())
    return made


@pytest.fixture(params=[False, True], ids=["in step", "in a thread"])
def maker(batch, request):
    made = AudioDecodeWorker(batch, EngineStatistics(), PaceMeter(), in_thread=request.param)
    yield made
    made.close()


def take_in(slot, *, seconds_in_hand=0.0):
    take = RunningTake(slot=slot, stream=TakeStream(1, 24_000, is_live=True))
    take.waiting = list(torch.randint(0, 64, (NUM_FRAMES, 16), generator=torch.Generator().manual_seed(slot)).unbind())
    if seconds_in_hand:
        take.stream.clock.add(seconds_in_hand, time.monotonic())
    return take


def chunks_of(*takes, frames):
    return DecodeBatch(takes, torch.stack([take.take_codes(frames) for take in takes]))


def heard(take):
    take.stream.finish(FinishReason.EOS)
    return np.concatenate(list(take.stream))


def test_chunks_in_a_row_are_the_whole_take(maker, batch, tiny_model):
    takes = [take_in(slot) for slot in range(2)]
    codes = torch.stack([torch.stack(take.waiting) for take in takes])
    for sizes in ((1, 3), (8,)):
        maker.start([chunks_of(*takes, frames=size) for size in sizes])
        maker.settle(wait=True)
    assert not any(take.waiting or take.is_decoding for take in takes)
    for take, whole in zip(takes, tiny_model.speech_tokenizer.decode(codes).numpy(), strict=True):
        assert np.abs(heard(take) - whole).max() < 1e-4


def test_only_the_last_frame_of_a_take_that_fades_is_silenced(maker, batch, tiny_model):
    fading, other = take_in(0), take_in(1)
    codes = torch.stack([torch.stack(take.waiting) for take in (fading, other)])
    both = torch.stack([take.take_codes(NUM_FRAMES) for take in (fading, other)])
    maker.start([DecodeBatch([fading, other], both, fading=[fading])])
    maker.settle(wait=True)
    frame = tiny_model.speech_tokenizer.config.decode_upsample_rate
    whole, other_whole = tiny_model.speech_tokenizer.decode(codes).numpy()
    sound = heard(fading)
    assert np.abs(heard(other) - other_whole).max() < 1e-4
    assert np.abs(sound[:-frame] - whole[:-frame]).max() < 1e-4
    faded = round(sound_maker.FADE * frame)
    assert not sound[len(sound) - frame + faded :].any()
    assert (np.abs(sound[-frame:]) <= np.abs(whole[-frame:]) + 1e-4).all()


def test_frames_that_can_wait_wait_again_in_their_order(maker, monkeypatch):
    monkeypatch.setattr(sound_maker, "DECODING_SECONDS", -1.0)
    urgent, patient = take_in(0), take_in(1, seconds_in_hand=3600.0)
    before = torch.stack(patient.waiting)
    maker.start([chunks_of(urgent, frames=4), chunks_of(patient, frames=4), chunks_of(patient, frames=2)])
    maker.settle(wait=True)
    assert len(urgent.waiting) == NUM_FRAMES - 4
    assert torch.equal(torch.stack(patient.waiting), before)
    assert (patient.num_chunks, patient.num_decoded) == (0, 0)
    # Whoever has ended is finished, however much sound is in hand.
    patient.reason = FinishReason.EOS
    maker.start([chunks_of(urgent, frames=4), chunks_of(patient, frames=NUM_FRAMES)])
    maker.settle(wait=True)
    assert not patient.waiting


def test_a_decoding_error_is_reported_to_the_engine_and_the_next_round_runs(maker, batch, monkeypatch):
    def fail(*_):
        raise RuntimeError("no memory")

    def go_round(take):
        maker.start([chunks_of(take, frames=1)])
        maker.settle(wait=True)

    with monkeypatch.context() as patch:
        patch.setattr(batch, "decode", fail)
        broken = take_in(0)
        with pytest.raises(RuntimeError, match="no memory"):
            go_round(broken)
    assert not broken.is_decoding
    go_round(other := take_in(1))
    assert len(heard(other)) == batch.model.speech_tokenizer.config.decode_upsample_rate
