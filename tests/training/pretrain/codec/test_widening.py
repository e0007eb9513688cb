import pytest
import torch

from tests.training.pretrain.codec.test_training import JOB
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.codec.widening import widen


def tokenizer_of(decoder_size: int, seed: int) -> SpeechTokenizer:
    torch.manual_seed(seed)
    tokenizer = SpeechTokenizer(JOB.size.model_copy(update={"decoder_size": decoder_size}).config())
    with torch.no_grad():
        for parameter in tokenizer.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return tokenizer.eval()


def test_a_wider_decoder_says_the_same_at_first_and_learns_with_all_it_has():
    narrow, wide = tokenizer_of(16, seed=1), tokenizer_of(48, seed=2)
    widen(narrow, wide)
    codes = torch.randint(16, (2, 9, 16), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(wide.decode(codes), narrow.decode(codes), rtol=1e-4, atol=1e-5)
    latents = torch.randn(2, JOB.size.codebook_width * 2, 9, generator=torch.Generator().manual_seed(4))
    wide.decoder(latents).square().mean().backward()
    last = wide.decoder.decoder[-1].conv.weight.grad
    assert last is not None
    assert (last[:, last.shape[1] // 3 :].abs().amax(dim=-1) > 0).all()


def test_a_smaller_network_has_no_room():
    with pytest.raises(ValueError, match="no room"):
        widen(tokenizer_of(48, seed=1), tokenizer_of(16, seed=2))


def test_another_network_is_refused():
    with pytest.raises(ValueError, match="lacks"):
        widen(tokenizer_of(16, seed=1).decoder, tokenizer_of(16, seed=1))
