from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.pretrain.tiny_corpus import write_corpus
from training.model.speech_tokenizer.tokenizer import SpeechTokenizer
from training.pretrain.corpus import open_corpus
from training.pretrain.crops import CropSource
from training.pretrain.errors import PretrainError
from training.pretrain.tokenizer_job import CropShape, TokenizerJob

SHAPES = (CropShape(share=3, num_crops=4, num_frames=3), CropShape(share=1, num_crops=1, num_frames=20))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "tones")


def test_a_step_draws_the_same_crops_whenever_it_is_done(corpus: Path):
    one, other = (CropSource(open_corpus(corpus), SHAPES, seed=5) for _ in range(2))
    in_order = [one.batch(step) for step in range(6)]
    for step in (4, 0, 5):
        assert torch.equal(other.batch(step), in_order[step])
    assert not torch.equal(CropSource(open_corpus(corpus), SHAPES, seed=6).batch(0), in_order[0])


def test_shapes_come_in_their_shares_and_sound_fits(corpus: Path):
    source = CropSource(open_corpus(corpus), SHAPES, seed=1)
    batches = [source.batch(step) for step in range(200)]
    assert {tuple(batch.shape) for batch in batches} == {(4, 3 * 1280), (1, 20 * 1280)}
    num_long = sum(len(batch) == 1 for batch in batches)
    assert 25 <= num_long <= 75
    assert all(batch.dtype == torch.float32 and batch.abs().max() < 1 for batch in batches)
    assert all(batch.abs().amax(dim=1).min() > 0 for batch in batches)


def test_short_utterances_lie_whole_in_silence(corpus: Path):
    """A tone begins and ends in silence, so what is cut off would be missed."""
    source = CropSource(open_corpus(corpus), SHAPES[1:], seed=1)
    for step in range(10):
        sounding = source.batch(step)[0].nonzero()
        assert 7_500 <= int(sounding[-1] - sounding[0]) <= 15_000


def test_crops_differ_in_loudness(corpus: Path):
    source = CropSource(open_corpus(corpus), SHAPES[1:], seed=1)
    peaks_db = 20 * np.log10([float(source.batch(step).abs().max()) for step in range(60)])
    assert peaks_db.max() - peaks_db.min() > 6


@given(num_steps=st.integers(2, 40_000))
def test_the_learning_rate_rises_once_and_falls_to_its_end(num_steps: int):
    job = TokenizerJob.of_length(num_steps)
    rates = [job.learning_rate(step) for step in range(0, num_steps + 1, max(1, num_steps // 200))]
    top = rates.index(max(rates))
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert job.learning_rate(job.num_warmup_steps) == pytest.approx(job.peak_learning_rate)
    assert job.learning_rate(num_steps) == pytest.approx(job.final_learning_rate)
    assert all(job.codebook_decay <= job.codebook_decay_at(step) < 1 for step in range(0, num_steps, 997))


def test_too_few_steps_are_refused():
    with pytest.raises(PretrainError, match="1 steps leave none for the codes"):
        TokenizerJob.of_length(1)
    with pytest.raises(PretrainError, match="num_steps"):
        TokenizerJob.of_length(0)


def test_the_shipped_size_is_a_few_million_parameters_at_a_public_frame_rate():
    config = TokenizerJob().size.config()
    with torch.device("meta"):
        tokenizer = SpeechTokenizer(config)
    assert 3e6 < sum(parameter.numel() for parameter in tokenizer.parameters()) < 6e6
    assert config.frame_rate_hz == 12.5
    assert config.decoder.num_quantizers == config.encoder_valid_num_quantizers == 16
    assert TokenizerJob().for_gpu().size == TokenizerJob().size
