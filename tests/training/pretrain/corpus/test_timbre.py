"""A timbre moves formants and colours, and leaves pitch, tempo and everything else of a voice as it was."""

import dataclasses

import numpy as np
import pytest

from tests.training.pretrain.corpus.test_speakers import f0_hz, formant_shift
from training.pretrain.corpus.speakers import by_name, training_speakers
from training.pretrain.corpus.timbre import Timbre
from training.pretrain.corpus.tts_engines import synthesize, tidy

NONE = Timbre(formant_factors=(1.0,) * 6, band_db=(0.0,) * 9, tilt_db=0.0)
SENTENCE = "We were away a year ago, when all our money ran low."


@pytest.fixture(scope="module")
def speech():
    return synthesize(by_name()["awb"], SENTENCE)


def as_float(audio):
    return audio.astype(np.float32) / np.float32(32768)


@pytest.mark.needs_program("flite")
def test_without_differences_nothing_changes(speech):
    sound = as_float(speech)
    assert np.abs(NONE.applied(sound) - sound).max() < 1e-5


@pytest.mark.parametrize("num_samples", [1, 100, 511, 512, 513])
def test_whatever_its_length_it_stays(num_samples):
    sound = np.random.default_rng(0).normal(size=num_samples).astype(np.float32)
    changed = Timbre.drawn("someone").applied(sound)
    assert changed.shape == sound.shape
    assert np.isfinite(changed).all()


@pytest.mark.needs_program("flite")
@pytest.mark.parametrize("factor", [0.88, 1.14])
def test_formants_move_and_pitch_stays(speech, factor):
    moved = dataclasses.replace(NONE, formant_factors=(factor,) * 6)
    changed = tidy(moved.applied(as_float(speech)))
    assert formant_shift(speech, changed) == pytest.approx(factor, abs=0.04)
    assert f0_hz(changed) == pytest.approx(f0_hz(speech), rel=0.03)


@pytest.mark.needs_program("flite")
def test_a_tilt_makes_high_ones_louder(speech):
    sound = as_float(speech)

    def slope(audio):
        power = np.square(np.abs(np.fft.rfft(audio)))
        hz = np.linspace(0, 8000, len(power))
        low, high = (power[(hz >= at) & (hz < 2 * at)].sum() for at in (1000, 4000))
        return 10 * np.log10(high / low)

    brighter = dataclasses.replace(NONE, tilt_db=3.0).applied(sound)
    assert slope(brighter) - slope(sound) == pytest.approx(6.0, abs=0.7)


def test_every_speaker_that_has_one_has_another_and_always_the_same():
    timbres = [speaker.timbre for speaker in training_speakers() if speaker.timbre is not None]
    assert len(timbres) >= 1000
    assert len(set(timbres)) == len(timbres)
    named = next(speaker for speaker in training_speakers() if speaker.timbre is not None)
    assert named.timbre == Timbre.drawn(named.name)


def test_formants_never_change_places():
    for timbre in (speaker.timbre for speaker in training_speakers()):
        if timbre is not None:
            new, _ = timbre._moved()
            assert (np.diff(new) > 0).all()
