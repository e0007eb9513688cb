from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.pretrain.tiny_corpus import write_corpus
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.codec.crops import CropSource
from training.pretrain.codec.frame_codes import CodedCorpus, analyse, open_codes, samples_of
from training.pretrain.codec.job import CropShape, TokenizerJob
from training.pretrain.corpus.corpus import TRAIN
from training.pretrain.errors import PretrainError

JOB = TokenizerJob.of_length(4)
SHAPES = (CropShape(share=3, num_crops=4, num_frames=3), CropShape(share=1, num_crops=1, num_frames=10))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "tones")


@pytest.fixture(scope="module")
def coded(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> CodedCorpus:
    run = tmp_path_factory.mktemp("run")
    analyse(corpus, run, JOB, (TRAIN,), lambda line: None)
    return open_codes(corpus, run, TRAIN)


def test_a_step_draws_the_same_crops_whenever_it_is_done(coded: CodedCorpus):
    one, other = (CropSource(coded, SHAPES, seed=5) for _ in range(2))
    in_order = [one.batch(step) for step in range(6)]
    for step in (4, 0, 5):
        assert all(map(torch.equal, other.batch(step), in_order[step]))
    assert not torch.equal(CropSource(coded, SHAPES, seed=6).batch(0).waveform, in_order[0].waveform)


def test_shapes_come_in_their_shares_and_sound_fits(coded: CodedCorpus):
    source = CropSource(coded, SHAPES, seed=1)
    batches = [source.batch(step) for step in range(200)]
    assert {tuple(batch.waveform.shape) for batch in batches} == {(4, 3 * 1280), (1, 10 * 1280)}
    assert {tuple(batch.codes.shape) for batch in batches} == {(4, 3, 16), (1, 10, 16)}
    num_long = sum(len(batch.waveform) == 1 for batch in batches)
    assert 25 <= num_long <= 75
    assert all((batch.waveform * batch.gains).abs().max() < 1 for batch in batches)


def test_codes_belong_to_the_samples_they_come_with(coded: CodedCorpus):
    """Codes of a crop are those of the utterance at that place, found by its samples."""
    source = CropSource(coded, SHAPES[:1], seed=3)
    batch = source.batch(0)
    for samples, codes in zip(batch.waveform, batch.codes, strict=True):
        places = [
            (number, first)
            for number in range(len(coded))
            for first in range(int(coded.num_frames[number]) - 2)
            if torch.equal(_padded(coded, number)[first * 1280 : (first + 3) * 1280], samples)
        ]
        assert any(torch.equal(coded.codes(number)[first : first + 3], codes) for number, first in places)


def test_crops_differ_in_loudness(coded: CodedCorpus):
    source = CropSource(coded, SHAPES[1:], seed=1)
    gains_db = 20 * np.log10([float(source.batch(step).gains) for step in range(60)])
    assert gains_db.max() - gains_db.min() > 6


def test_a_corpus_of_short_utterances_is_refused_for_long_crops(coded: CodedCorpus):
    with pytest.raises(PretrainError, match="No utterance of the corpus has 500 frames"):
        CropSource(coded, (CropShape(share=1, num_crops=1, num_frames=500),), seed=1)


def test_the_analysis_is_done_once(corpus: Path, tmp_path: Path):
    told: list[str] = []
    analyse(corpus, tmp_path, JOB, (TRAIN,), told.append)
    assert told == ["finding the codebooks", "train: codes of shard 1 of 1"]
    analyse(corpus, tmp_path, JOB, (TRAIN,), told.append)
    assert len(told) == 2


def test_without_analysis_there_are_no_codes(corpus: Path, tmp_path: Path):
    with pytest.raises(PretrainError, match="Run the tokenizer stage first"):
        open_codes(corpus, tmp_path, TRAIN)


def _padded(coded: CodedCorpus, number: int) -> torch.Tensor:
    samples = samples_of(coded.corpus, number)
    return torch.nn.functional.pad(samples, (0, -len(samples) % 1280))


@given(num_steps=st.integers(2, 40_000))
def test_the_learning_rate_rises_once_and_falls_to_its_end(num_steps: int):
    job = TokenizerJob.of_length(num_steps)
    rates = [job.learning_rate_ratio(step) for step in range(0, num_steps + 1, max(1, num_steps // 200))]
    top = rates.index(max(rates))
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert job.learning_rate_ratio(job.num_warmup_steps) == pytest.approx(1)
    assert job.learning_rate_ratio(num_steps) == pytest.approx(job.min_lr_ratio)


def test_too_few_steps_are_refused():
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
