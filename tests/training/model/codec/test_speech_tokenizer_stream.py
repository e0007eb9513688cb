"""Decoding as a stream equals decoding at once, row by row, whatever the chunks."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.training.model.codec.largest_tensor import LargestTensor
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.codec.stream_state import DecoderState

SAMPLES_PER_FRAME = 96
chunkings = st.lists(st.integers(1, 12), min_size=1, max_size=6)


def random_codes(num_rows: int, num_frames: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 64, (num_rows, num_frames, 16), generator=generator)


def decode_whole(tokenizer: SpeechTokenizer, codes_BFQ: Tensor) -> Tensor:
    """Without any state: the path that training uses."""
    with torch.no_grad():
        waveform_BS: Tensor = tokenizer.decoder(tokenizer.decoder.quantizer.decode(codes_BFQ))
    return waveform_BS


def step(tokenizer: SpeechTokenizer, codes_BFQ: Tensor, state: DecoderState) -> Tensor:
    """`decode_step` in the network's own precision and without its clamp."""
    with torch.no_grad():
        waveform_BS: Tensor = tokenizer.decoder(tokenizer.decoder.quantizer.decode(codes_BFQ), state)
    return waveform_BS


@settings(deadline=None, max_examples=15)
@given(chunks=chunkings, num_rows=st.integers(1, 3))
def test_any_chunking_gives_the_whole_waveform(
    lively_tokenizer: SpeechTokenizer, chunks: list[int], num_rows: int
) -> None:
    codes_BFQ = random_codes(num_rows, sum(chunks))
    state = lively_tokenizer.start_stream(num_rows)
    pieces = [step(lively_tokenizer, piece_BFQ, state) for piece_BFQ in codes_BFQ.split(chunks, dim=1)]
    whole_BS = decode_whole(lively_tokenizer, codes_BFQ)
    assert whole_BS.abs().max() > 1e-3
    assert [piece_BS.shape[1] for piece_BS in pieces] == [chunk * SAMPLES_PER_FRAME for chunk in chunks]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole_BS, rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=5)
@given(chunks=chunkings)
def test_any_chunking_in_single_precision(lively_tokenizer: SpeechTokenizer, chunks: list[int]) -> None:
    tokenizer = copy.deepcopy(lively_tokenizer).float()
    codes_BFQ = random_codes(2, sum(chunks))
    state = tokenizer.start_stream(2)
    pieces = [tokenizer.decode_step(piece_BFQ, state) for piece_BFQ in codes_BFQ.split(chunks, dim=1)]
    whole_BS = decode_whole(tokenizer, codes_BFQ).clamp(-1, 1)
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole_BS, rtol=0, atol=1e-4)
    torch.testing.assert_close(tokenizer.decode(codes_BFQ), whole_BS, rtol=0, atol=1e-4)


@settings(deadline=None, max_examples=10)
@given(before=chunkings, after=chunkings)
def test_a_reset_row_is_a_fresh_stream(lively_tokenizer: SpeechTokenizer, before: list[int], after: list[int]) -> None:
    codes_BFQ = random_codes(2, sum(before) + sum(after))
    state, fresh = lively_tokenizer.start_stream(2), lively_tokenizer.start_stream(2)
    early, late = codes_BFQ.split([sum(before), sum(after)], dim=1)
    first = [step(lively_tokenizer, piece_BFQ, state) for piece_BFQ in early.split(before, dim=1)]
    state.put(torch.tensor([1]), lively_tokenizer.start_stream(1))
    assert state.positions_B.tolist() == [sum(before), 0]
    pieces = [step(lively_tokenizer, piece_BFQ, state) for piece_BFQ in late.split(after, dim=1)]
    fresh_pieces = [step(lively_tokenizer, piece_BFQ, fresh) for piece_BFQ in late.split(after, dim=1)]
    assert torch.equal(torch.cat(pieces, dim=1)[1], torch.cat(fresh_pieces, dim=1)[1])
    undisturbed_BS = decode_whole(lively_tokenizer, codes_BFQ[:1])
    torch.testing.assert_close(torch.cat(first + pieces, dim=1)[:1], undisturbed_BS, rtol=0, atol=1e-10)


def test_a_cloned_state_continues_on_its_own(lively_tokenizer: SpeechTokenizer) -> None:
    codes_BFQ = random_codes(1, 12)
    state = lively_tokenizer.start_stream(1)
    step(lively_tokenizer, codes_BFQ[:, :9], state)
    continuation = state.clone()
    detour_BS = step(lively_tokenizer, codes_BFQ[:, :3], state)
    waveform_BS = step(lively_tokenizer, codes_BFQ[:, 9:], continuation)
    whole_BS = decode_whole(lively_tokenizer, codes_BFQ)[:, 9 * SAMPLES_PER_FRAME :]
    torch.testing.assert_close(waveform_BS, whole_BS, rtol=0, atol=1e-10)
    assert (detour_BS - whole_BS).abs().max() > 1e-6


@settings(deadline=None, max_examples=8)
@given(num_past=st.integers(1, 20), num_future=st.integers(1, 5))
def test_later_codes_do_not_change_earlier_sound(
    lively_tokenizer: SpeechTokenizer, num_past: int, num_future: int
) -> None:
    codes_BFQ = random_codes(1, num_past + num_future)
    changed_BFQ = codes_BFQ.clone()
    changed_BFQ[:, num_past:] = (changed_BFQ[:, num_past:] + 1) % 64
    waveform_BS, changed_BS = (decode_whole(lively_tokenizer, codes) for codes in (codes_BFQ, changed_BFQ))
    border = num_past * SAMPLES_PER_FRAME
    torch.testing.assert_close(waveform_BS[:, :border], changed_BS[:, :border], rtol=0, atol=1e-10)
    assert (waveform_BS[:, border:] - changed_BS[:, border:]).abs().max() > 1e-6


def test_sound_forgets_what_left_every_window(lively_tokenizer: SpeechTokenizer) -> None:
    """Two attention windows of 8 frames reach back 14 of them, the convolutions before and after another 17."""
    codes_BFQ = random_codes(1, 48)
    changed_BFQ = codes_BFQ.clone()
    changed_BFQ[:, 0] = (changed_BFQ[:, 0] + 1) % 64
    difference_S = (decode_whole(lively_tokenizer, codes_BFQ) - decode_whole(lively_tokenizer, changed_BFQ)).abs()[0]
    last_changed_sample = int((difference_S > 1e-12).nonzero().max())
    assert 30 * SAMPLES_PER_FRAME < last_changed_sample < 32 * SAMPLES_PER_FRAME


def test_a_long_take_in_bounded_memory(lively_tokenizer: SpeechTokenizer) -> None:
    tokenizer = copy.deepcopy(lively_tokenizer).float()
    codes_BFQ = random_codes(1, 700)
    with LargestTensor() as largest:
        waveform_BS = tokenizer.decode(codes_BFQ)
    assert largest.numel == waveform_BS.numel() == 700 * SAMPLES_PER_FRAME
    whole_BS = decode_whole(tokenizer, codes_BFQ).clamp(-1, 1)
    torch.testing.assert_close(waveform_BS, whole_BS, rtol=0, atol=1e-4)


def test_half_precision_sounds_the_same(lively_tokenizer: SpeechTokenizer) -> None:
    codes_BFQ = random_codes(1, 12)
    whole_S = decode_whole(lively_tokenizer, codes_BFQ)[0].float()
    single = copy.deepcopy(lively_tokenizer).float()
    single.use_decoder_dtype(torch.bfloat16)
    for halved in (single, copy.deepcopy(lively_tokenizer).to(torch.bfloat16)):
        waveform_S = halved.decode(codes_BFQ)[0]
        assert waveform_S.dtype == torch.float32
        assert torch.corrcoef(torch.stack((whole_S, waveform_S)))[0, 1] > 0.99
    assert single.decoder.pre_conv.conv.weight.dtype == torch.bfloat16
    assert single.decoder.quantizer.rvq_first.vq.state_dict().popitem()[1].dtype == torch.float32


def test_latents_to_waveform_is_differentiable(lively_tokenizer: SpeechTokenizer) -> None:
    decoder = copy.deepcopy(lively_tokenizer.decoder)
    latents_BDF = decoder.quantizer.decode(random_codes(2, 5)).detach().requires_grad_()
    decoder(latents_BDF).square().mean().backward()
    assert latents_BDF.grad is not None
    without_gradient = {
        name
        for name, parameter in decoder.named_parameters()
        if parameter.grad is None or not parameter.grad.abs().max() > 0
    }
    assert all(name.startswith("quantizer.") for name in without_gradient)


def test_no_frames_make_no_sound(golden_tokenizer: SpeechTokenizer) -> None:
    assert golden_tokenizer.decode(random_codes(2, 0)).shape == (2, 0)


def test_wrong_codes_are_refused(golden_tokenizer: SpeechTokenizer) -> None:
    codes_BFQ = random_codes(2, 3)
    with pytest.raises(ValueError, match="16"):
        golden_tokenizer.decode(codes_BFQ[..., :15])
    with pytest.raises(ValueError, match="0 to 63"):
        golden_tokenizer.decode(codes_BFQ + 64)
    with pytest.raises(ValueError, match="rows"):
        golden_tokenizer.decode_step(codes_BFQ, golden_tokenizer.start_stream(1))
