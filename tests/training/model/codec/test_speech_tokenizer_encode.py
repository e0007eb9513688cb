"""Encoding: the same codes alone, in a batch, piece by piece, and for the start of a longer recording."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from tests.training.model.codec.largest_tensor import LargestTensor
from training.model.codec.speech_tokenizer import SpeechTokenizer

SAMPLES_PER_FRAME = 96
# Around whole frames and whole strides, where padding changes, and anywhere.
lengths = st.one_of(
    st.integers(1, 600), st.builds(lambda half, off: max(1, 48 * half + off), st.integers(0, 12), st.integers(-1, 1))
)


def random_waveform(num_samples: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_samples, generator=generator) * 0.3


@settings(deadline=None, max_examples=25)
@given(row_lengths=st.lists(lengths, min_size=2, max_size=4))
def test_a_batch_encodes_like_each_alone(lively_tokenizer: SpeechTokenizer, row_lengths: list[int]) -> None:
    waveforms = [random_waveform(length, seed) for seed, length in enumerate(row_lengths)]
    together = lively_tokenizer.encode(waveforms)
    for waveform_S, codes_FQ in zip(waveforms, together, strict=True):
        (alone_FQ,) = lively_tokenizer.encode([waveform_S])
        assert codes_FQ.shape == (-(-waveform_S.shape[0] // SAMPLES_PER_FRAME), 16)
        assert torch.equal(codes_FQ, alone_FQ)


@settings(deadline=None, max_examples=10)
@given(num_frames=st.integers(1, 8), num_more=st.integers(1, 450))
def test_whole_frames_do_not_see_what_follows(
    lively_tokenizer: SpeechTokenizer, num_frames: int, num_more: int
) -> None:
    waveform_S = random_waveform(num_frames * SAMPLES_PER_FRAME + num_more)
    (longer_FQ,) = lively_tokenizer.encode([waveform_S])
    (codes_FQ,) = lively_tokenizer.encode([waveform_S[: num_frames * SAMPLES_PER_FRAME]])
    assert torch.equal(longer_FQ[:num_frames], codes_FQ)


@settings(deadline=None, max_examples=25)
@given(row_lengths=st.lists(lengths, min_size=1, max_size=4))
def test_an_encoder_of_whole_frames_hears_zeros_to_the_end_of_the_last(
    whole_frame_tokenizer: SpeechTokenizer, row_lengths: list[int]
) -> None:
    waveforms = [random_waveform(length, seed) for seed, length in enumerate(row_lengths)]
    filled = [functional.pad(waveform_S, (0, -len(waveform_S) % SAMPLES_PER_FRAME)) for waveform_S in waveforms]
    for codes_FQ, whole_S in zip(whole_frame_tokenizer.encode(waveforms), filled, strict=True):
        assert torch.equal(codes_FQ, whole_frame_tokenizer.encode([whole_S])[0])
        # And silence behind it changes nothing of what was said.
        longer_S = functional.pad(whole_S, (0, 2 * SAMPLES_PER_FRAME + 1))
        assert torch.equal(codes_FQ, whole_frame_tokenizer.encode([longer_S])[0][: len(codes_FQ)])


def test_others_hear_their_own_padding_there(
    lively_tokenizer: SpeechTokenizer, whole_frame_tokenizer: SpeechTokenizer
) -> None:
    recordings = [random_waveform(5 * SAMPLES_PER_FRAME + more) for more in (1, 20, 40, 60, 80)]
    own, whole = lively_tokenizer.encode(recordings), whole_frame_tokenizer.encode(recordings)
    assert all(torch.equal(one_FQ[:5], other_FQ[:5]) for one_FQ, other_FQ in zip(own, whole, strict=True))
    assert not all(torch.equal(one_FQ[5], other_FQ[5]) for one_FQ, other_FQ in zip(own, whole, strict=True))


def test_pieces_give_the_latents_of_the_whole(lively_tokenizer: SpeechTokenizer) -> None:
    row_lengths = [100 * SAMPLES_PER_FRAME, 47 * SAMPLES_PER_FRAME + 5]
    rows = [random_waveform(length, seed).double() for seed, length in enumerate(row_lengths)]
    waveform_BS = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    whole_BDF = lively_tokenizer.encoder.latents(waveform_BS, row_lengths)
    with torch.no_grad():
        pieces_BDF = lively_tokenizer.encoder.latents(waveform_BS, row_lengths)
    torch.testing.assert_close(pieces_BDF, whole_BDF.detach(), rtol=0, atol=1e-10)


def test_a_long_recording_in_bounded_memory(lively_tokenizer: SpeechTokenizer) -> None:
    waveform_S = random_waveform(3000 * SAMPLES_PER_FRAME)
    with LargestTensor() as largest:
        (codes_FQ,) = copy.deepcopy(lively_tokenizer).float().encode([waveform_S])
    assert codes_FQ.shape[0] == 3000
    # The convolutions' first layer on all of it would have 4 times as many values, attention weights 250 times.
    assert largest.numel < 2 * waveform_S.numel()


def test_latents_are_differentiable(lively_tokenizer: SpeechTokenizer) -> None:
    encoder = copy.deepcopy(lively_tokenizer.encoder)
    waveform_BS = torch.stack([random_waveform(250, seed) for seed in (0, 1)]).double().requires_grad_()
    encoder.latents(waveform_BS, [250, 150])[1, :, :2].square().mean().backward()
    assert waveform_BS.grad is not None
    assert waveform_BS.grad[1, :150].abs().min() > 0
    assert waveform_BS.grad[0].abs().max() == 0
    assert waveform_BS.grad[1, 150:].abs().max() == 0
    assert all(
        parameter.grad is not None and parameter.grad.abs().max() > 0
        for name, parameter in encoder.named_parameters()
        if not name.startswith("quantizer.")
    )


def test_nothing_to_encode(golden_tokenizer: SpeechTokenizer) -> None:
    assert golden_tokenizer.encode([]) == []


@pytest.mark.parametrize("shape", [(0,), (2, 4800)])
def test_an_empty_or_stereo_waveform_is_refused(golden_tokenizer: SpeechTokenizer, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Waveform 1"):
        golden_tokenizer.encode([torch.zeros(100), torch.zeros(shape)])
