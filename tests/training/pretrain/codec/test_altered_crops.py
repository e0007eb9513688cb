from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.pretrain.tiny_corpus import write_corpus
from training.pretrain.codec.altered_crops import AlteredCrops, altered
from training.pretrain.codec.code_space import CodeSpace
from training.pretrain.codec.crops import CropSource
from training.pretrain.codec.frame_codes import CodedCorpus, analyse, open_codes
from training.pretrain.codec.frame_features import FrameFeatures
from training.pretrain.codec.job import CropShape, TokenizerJob
from training.pretrain.corpus.corpus import TRAIN

SHAPES = (CropShape(share=1, num_crops=4, num_frames=6),)


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> tuple[CodedCorpus, CodeSpace]:
    corpus: Path = write_corpus(tmp_path_factory.mktemp("corpus") / "tones")
    run = tmp_path_factory.mktemp("run")
    space = analyse(corpus, run, TokenizerJob.of_length(4), (TRAIN,), lambda line: None)
    return open_codes(corpus, run, TRAIN), space


def crops_of(
    analysed: tuple[CodedCorpus, CodeSpace], altered_share: float, deepened_share: float = 0.0
) -> AlteredCrops:
    coded, space = analysed
    crops = CropSource(coded, SHAPES, seed=2)
    return AlteredCrops(crops, space, altered_share=altered_share, deepened_share=deepened_share)


def test_part_of_what_is_altered_is_made_deep(analysed, monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr(
        "training.pretrain.codec.altered_crops.deepened",
        lambda speech, pitch_hz, random: asked.append(pitch_hz) or (speech * 0.5 if len(asked) % 2 else None),
    )
    for share, most, least in ((0.0, 0, 0), (0.5, 30, 4), (1.0, 48, 48)):
        asked.clear()
        for step in range(12):
            crops_of(analysed, 1.0, share).batch(step)
        assert least <= len(asked) <= most
    crops_of(analysed, 0.0, 1.0).batch(0)
    assert len(asked) == 48


@pytest.mark.parametrize("altered_share", [0.0, 1.0])
def test_codes_are_what_the_analysis_hears_in_the_samples_they_come_with(analysed, altered_share):
    space = analysed[1]
    batches = [crops_of(analysed, altered_share).batch(step) for step in range(4)]
    for batch in batches:
        for samples, codes in zip(batch.waveform, batch.codes, strict=True):
            heard = space.encode(FrameFeatures(16_000)(samples))
            # The first frame looks back before the crop, and codebook 0 is relative to the whole utterance.
            assert torch.equal(codes[1:, 1:], heard[1:, 1:])
    assert {tuple(batch.codes.shape) for batch in batches} == {(4, 6, 16)}
    assert all((batch.waveform * batch.gains).abs().max() < 1 for batch in batches)
    assert all(batch.is_analysed.all() for batch in batches)


def test_a_step_draws_the_same_crops_whenever_it_is_done(analysed):
    in_order = [crops_of(analysed, 0.7).batch(step) for step in range(4)]
    later = crops_of(analysed, 0.7)
    for step in (3, 0):
        assert all(map(torch.equal, later.batch(step), in_order[step]))


def test_speech_changes_its_pitch_and_keeps_its_loudness():
    tone = (0.2 * np.sin(2 * np.pi * 500 * np.arange(16_000) / 16_000)).astype(np.float32)
    pitches_hz = []
    for seed in range(40):
        changed = altered(tone, np.random.default_rng(seed))
        assert changed.dtype == np.float32
        assert np.square(changed).mean() == pytest.approx(np.square(tone).mean(), rel=0.02)
        spectrum = np.abs(np.fft.rfft(changed * np.hanning(len(changed)), 160_000))
        pitches_hz.append(float(np.argmax(spectrum)) / 10)
        assert len(changed) / len(tone) == pytest.approx(500 / pitches_hz[-1], rel=0.01)
    assert min(pitches_hz) < 450
    assert max(pitches_hz) > 560
    assert sum(pitch == 500 for pitch in pitches_hz) >= 4


def test_speech_is_not_made_shorter_than_asked():
    speech = np.random.default_rng(0).normal(scale=0.1, size=5000).astype(np.float32)
    lengths = {len(altered(speech, np.random.default_rng(seed), min_samples=5000)) for seed in range(30)}
    assert min(lengths) == 5000 < max(lengths)
