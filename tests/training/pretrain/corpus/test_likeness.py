"""A voice made like another one gets its spectrum, and keeps pitch, tempo and whatever else it has."""

import numpy as np
import pytest
from scipy.signal import lfilter

from tests.training.pretrain.corpus.test_speakers import f0_hz
from training.pretrain.corpus import speakers
from training.pretrain.corpus import tts_engines as engines
from training.pretrain.corpus.likeness import Likeness, VoiceSpectrum, made_like
from training.pretrain.corpus.speakers import Speaker, by_name
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ, synthesize, tidy

SENTENCE = "We were away a year ago, when all our money ran low."
PEOPLE = ("anna", "natan", "elena")


def voice(seed: int, num_sounds: int = 60) -> np.ndarray:
    """Noise through resonances that move about a mean of the voice's own, loud for 0.1 s each."""
    draw = np.random.default_rng(seed)
    own = draw.uniform([400, 1200, 2200], [800, 1900, 3400])
    spread = draw.uniform(0.05, 0.25, 3)
    sounds = []
    for _ in range(num_sounds):
        sound = draw.normal(size=SAMPLE_RATE_HZ // 10)
        for hz in own * np.exp(draw.normal(size=3) * spread):
            radius = 0.96
            sound = lfilter([1], [1, -2 * radius * np.cos(2 * np.pi * hz / SAMPLE_RATE_HZ), radius**2], sound)
        sounds.append(0.1 * sound / sound.std())
    return np.concatenate(sounds).astype(np.float32)


def distance(one: VoiceSpectrum, other: VoiceSpectrum) -> tuple[float, float]:
    """Of means, and of covariances."""
    return (
        float(np.linalg.norm(one.mean_K - other.mean_K)),
        float(np.linalg.norm(one.covariance_KK - other.covariance_KK)),
    )


@pytest.fixture(scope="module")
def two() -> tuple[np.ndarray, np.ndarray]:
    return voice(1), voice(2)


def test_like_itself_it_stays_as_it_is(two: tuple[np.ndarray, np.ndarray]):
    own = VoiceSpectrum.of([two[0]])
    assert np.abs(made_like(two[0], own, own, 1.0) - two[0]).max() < 1e-4


def test_not_at_all_like_another_it_stays_as_it_is(two: tuple[np.ndarray, np.ndarray]):
    own, wanted = (VoiceSpectrum.of([one]) for one in two)
    assert np.abs(made_like(two[0], own, wanted, 0.0) - two[0]).max() < 1e-4


def test_it_gets_the_mean_and_the_spread_of_another(two: tuple[np.ndarray, np.ndarray]):
    own, wanted = (VoiceSpectrum.of([one]) for one in two)
    before = distance(own, wanted)
    half, whole = (distance(VoiceSpectrum.of([made_like(two[0], own, wanted, amount)]), wanted) for amount in (0.5, 1))
    assert whole[0] < 0.25 * before[0]
    assert whole[1] < 0.5 * before[1]
    assert whole[0] < half[0] < before[0]


def test_there_are_people_between_two(two: tuple[np.ndarray, np.ndarray]):
    one, other = (VoiceSpectrum.of([each]) for each in two)
    assert distance(one.towards(other, 0.0), one) == pytest.approx((0, 0), abs=1e-6)
    assert distance(one.towards(other, 1.0), other) == pytest.approx((0, 0), abs=1e-6)
    between = one.towards(other, 0.5)
    assert distance(between, one)[0] == pytest.approx(distance(between, other)[0])
    assert (np.linalg.eigvalsh(between.covariance_KK) > 0).all()


@pytest.mark.parametrize("num_samples", [1, 100, 511, 512, 513])
def test_whatever_its_length_it_stays(num_samples: int, two: tuple[np.ndarray, np.ndarray]):
    own, wanted = (VoiceSpectrum.of([one]) for one in two)
    changed = made_like(two[0][:num_samples], own, wanted, 1.0)
    assert changed.shape == (num_samples,)
    assert np.isfinite(changed).all()


@pytest.mark.needs_program("flite")
def test_pitch_and_tempo_of_speech_stay():
    spectra = [
        VoiceSpectrum.of([synthesize(by_name()[name], SENTENCE).astype(np.float32) / np.float32(32768)])
        for name in ("awb", "slt")
    ]
    speech = synthesize(by_name()["awb"], SENTENCE)
    changed = tidy(made_like(speech.astype(np.float32) / np.float32(32768), *spectra, 1.0))
    assert changed is not None
    assert f0_hz(changed) == pytest.approx(f0_hz(speech), rel=0.03)
    assert len(changed) == pytest.approx(len(speech), rel=0.03)


def test_every_speaker_is_like_people_who_are_not_judged_by_and_always_the_same():
    like = speakers.like_speakers()
    assert len({speaker.likeness for speaker in like}) > 0.99 * len(like)
    foreign = {speaker.name for speaker in speakers.foreign_speakers()}
    assert {name for speaker in like for name in speaker.likeness.people} <= foreign
    assert not {"rms", "ked_diphone"} & {speaker.voice for speaker in like}
    one = like[7]
    assert Likeness.drawn(one.name, tuple(sorted(PEOPLE))) == Likeness.drawn(one.name, tuple(sorted(PEOPLE)))
    assert speakers.by_name()[one.name] is one


def test_nobody_is_like_people_who_are_not_installed(monkeypatch: pytest.MonkeyPatch):
    installed = tuple(by_name()[name] for name in PEOPLE)
    monkeypatch.setattr(engines, "installed_foreign_speakers", lambda: installed)
    monkeypatch.setattr(engines, "_can_speak", lambda speaker: True)
    some = engines.installed_like_speakers()
    assert some
    assert all(set(speaker.likeness.people) <= set(PEOPLE) for speaker in some)
    monkeypatch.setattr(engines, "_can_speak", lambda speaker: speaker.engine == speakers.FLITE)
    assert {speaker.engine for speaker in engines.installed_like_speakers()} == {speakers.FLITE}


@pytest.mark.needs_program("flite")
def test_a_speaker_is_said_like_them(monkeypatch: pytest.MonkeyPatch):
    # Of flite's voices, so that nothing else has to be installed.
    likeness = Likeness(people=("slt", "kal16"), share=0.25, amount=1.0)
    plain, like = (Speaker(name="x", engine="flite", voice="awb", likeness=one) for one in (None, likeness))
    monkeypatch.setattr(engines, "_KNOWN_BY", (SENTENCE,))
    engines._spectrum.cache_clear()
    sounds = [synthesize(each, SENTENCE).astype(np.float32) / np.float32(32768) for each in (plain, like)]
    before, after = (VoiceSpectrum.of([sound]) for sound in sounds)
    wanted = engines._spectrum(by_name()["slt"]).towards(engines._spectrum(by_name()["kal16"]), 0.25)
    engines._spectrum.cache_clear()
    assert distance(after, wanted)[0] < 0.5 * distance(before, wanted)[0]
