from __future__ import annotations

import numpy as np
import pytest
import torch

from training.model.generation.frame_loop import FrameLoop
from training.model.generation.take_batch import TakeBatch
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.sampling_settings import Sampling


@pytest.fixture
def batch(golden_model):
    return TakeBatch(golden_model, num_slots=3, cache_length=400, consume=False)


@pytest.fixture(scope="module")
def request_of(speaker):
    return TakeRequest(text="Hello.", voice=VoicePrompt(speaker=speaker), seed=5, max_frames=10)


@pytest.fixture(scope="module")
def in_context(speaker):
    codes = torch.randint(0, 64, (150, 16), generator=torch.Generator().manual_seed(1))
    return TakeRequest(
        text="Hello.",
        voice=VoicePrompt(speaker=speaker, reference_codes=codes, reference_text="What it says."),
        seed=6,
        max_frames=10,
    )


def test_rows_of_one_decoder_are_streams_of_their_own(batch):
    codec = batch.model.speech_tokenizer
    codes = torch.randint(0, 64, (3, 12, 16))
    plain = VoicePrompt()
    for slot in range(3):
        batch._start_decoder(slot, plain)
    pieces = {slot: [] for slot in range(3)}
    # Different rows in every call, as takes that began at different times have chunks ready.
    for slots, frames in (([0], 4), ([2, 0], 4), ([1], 12), ([2], 8), ([0], 4)):
        start = [sum(len(piece) for piece in pieces[slot]) // codec.config.decode_upsample_rate for slot in slots]
        chunk = torch.stack([codes[slot, at : at + frames] for slot, at in zip(slots, start, strict=True)])
        for slot, samples in zip(slots, batch.decode(slots, chunk), strict=True):
            pieces[slot].append(samples)
    whole = codec.decode(codes).numpy()
    for slot in range(3):
        assert np.abs(np.concatenate(pieces[slot]) - whole[slot]).max() < 1e-4


def test_a_reference_is_gone_through_in_pieces_and_remembered(batch, in_context):
    laid_out = batch.lay_out(in_context)
    batch.admit(0, laid_out, in_context.voice)
    assert batch.is_preparing(0)
    num_pieces = 1
    while not batch.prepare(0):
        num_pieces += 1
    assert num_pieces == 3
    batch.admit(1, laid_out, in_context.voice)
    assert not batch.is_preparing(1)
    # What was remembered is taken over exactly.
    first, second = (batch._decoders.view(slot, 1) for slot in (0, 1))
    assert first.positions_B == second.positions_B > 0
    assert all(torch.equal(carry, second.carry(layer)) for layer, carry in first._carries.items())
    codes = torch.randint(0, 64, (1, 4, 16)).expand(2, -1, -1)
    both = batch.decode([0, 1], codes)
    # Samples, on which rounding works more than on logits; with AVX2 alone 3e-5 were seen.
    assert np.abs(both[0] - both[1]).max() < 1e-4


def test_a_take_that_fails_to_begin_leaves_its_slot_free(batch, request_of, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of memory")

    laid_out = batch.lay_out(request_of)
    with monkeypatch.context() as patch:
        patch.setattr(batch.loop._main, "prefill", fail)
        with pytest.raises(RuntimeError, match="memory"):
            batch.admit(1, laid_out, request_of.voice)
    assert batch.free_slots == (0, 1, 2)
    batch.admit(1, laid_out, request_of.voice)
    assert batch.step().spoke == (1,)


@pytest.mark.parametrize("others", ["none", "short", "long"])
def test_logits_do_not_depend_on_the_company_to_the_last_bit(golden_model, batch, request_of, in_context, others):
    """Not the codes alone, which hide small differences until they matter: the numbers they are drawn from."""

    def logits_of(company):
        loop = FrameLoop(golden_model.talker, golden_model.config, num_slots=4, cache_length=600)
        seen, draw_next = [], loop._draw_next
        for slot, request in company:
            loop.admit(slot, batch.lay_out(request))
        loop._draw_next = lambda logits, state: (seen.append(logits[1].clone()), draw_next(logits, state))[1]
        loop.admit(1, batch.lay_out(request_of))
        while 1 not in loop.free_slots:
            loop.step()
        return torch.stack(seen)

    alone = logits_of([])
    wide = Sampling(top_k=0, top_p=0.7)
    company = {
        "none": [],
        "short": [(0, request_of), (3, TakeRequest(text="Yes, of course.", voice=request_of.voice, sampling=wide))],
        "long": [(2, in_context), (3, TakeRequest(text="Very long. " * 30, voice=request_of.voice, max_frames=50))],
    }[others]
    assert torch.equal(logits_of(company), alone)
