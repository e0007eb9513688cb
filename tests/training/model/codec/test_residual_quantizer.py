"""Codebooks: nearest entries, sums of entries, and no memory of weights that were replaced."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.model.codec.quantizer import DecoderCodebook, EncoderCodebook
from training.model.codec.speech_tokenizer import SpeechTokenizer


def random_codebook(seed: int) -> EncoderCodebook:
    generator = torch.Generator().manual_seed(seed)
    codebook = EncoderCodebook(32, 6)
    codebook.embed_sum.normal_(generator=generator)
    codebook.cluster_usage.uniform_(0, 2, generator=generator)
    codebook.cluster_usage[:3] = 0
    return codebook


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_encode_finds_the_nearest_entry(seed: int) -> None:
    codebook = random_codebook(seed)
    vectors_ND = torch.randn(20, 6, generator=torch.Generator().manual_seed(seed))
    table_VD = codebook.decode(torch.arange(32))
    distances_NV = (vectors_ND[:, None].double() - table_VD.double()).norm(dim=-1)
    assert torch.equal(codebook.encode(vectors_ND), distances_NV.argmin(dim=-1))


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_an_entry_encodes_as_itself(seed: int) -> None:
    codebook = random_codebook(seed)
    used = torch.arange(3, 32)
    assert torch.equal(codebook.encode(codebook.decode(used)), used)


def test_replaced_weights_take_effect() -> None:
    codes = torch.arange(4)
    codebook, other = DecoderCodebook(8, 2), DecoderCodebook(8, 2)
    torch.nn.init.normal_(codebook.embedding_sum)
    torch.nn.init.normal_(other.embedding_sum)
    torch.nn.init.uniform_(other.cluster_usage, 1, 2)
    assert not torch.equal(codebook.decode(codes), other.decode(codes))
    codebook.load_state_dict(other.state_dict())
    assert torch.equal(codebook.decode(codes), other.decode(codes))
    halved = codebook.to(torch.bfloat16).decode(codes)
    torch.testing.assert_close(halved.float(), other.decode(codes), rtol=0.02, atol=0.02)


def test_more_codebooks_come_nearer_to_the_latents(golden_tokenizer: SpeechTokenizer) -> None:
    """With fitting codebooks each one leaves less over; here codebook k holds steps of half the size of k - 1."""
    quantizer = copy.deepcopy(golden_tokenizer.encoder.quantizer.acoustic_residual_vector_quantizer)
    quantizer.input_proj = quantizer.output_proj = None
    signs_VD = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4).repeat(4, 1)
    for index, codebook in enumerate(quantizer._codebooks()):
        codebook.embed_sum = torch.nn.functional.pad(signs_VD, (0, 12)) * 0.5 ** (index + 1)
        codebook.cluster_usage.fill_(1)
    latents_BDF = torch.nn.functional.pad(torch.rand(1, 4, 9) * 2 - 1, (0, 0, 0, 12))
    for num_quantizers in (1, 4, 8):
        decoded_BDF = quantizer.decode(quantizer.encode(latents_BDF, num_quantizers))
        assert (decoded_BDF - latents_BDF).abs().max() <= 0.5**num_quantizers + 1e-6


def test_an_impossible_number_of_codebooks_is_refused(golden_tokenizer: SpeechTokenizer) -> None:
    quantizer = golden_tokenizer.encoder.quantizer
    for num_quantizers in (0, 21):
        with pytest.raises(ValueError, match="1 to 20"):
            quantizer.encode(torch.zeros(1, 32, 2), num_quantizers)
    assert quantizer.decode(quantizer.encode(torch.zeros(1, 32, 2), 20)).shape == (1, 32, 2)
