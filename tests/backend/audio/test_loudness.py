"""Every clip ends at one loudness, unclipped, with little silence around it and nothing of its sound lost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backend.audio.loudness import audible_range, measure_loudness, normalise_loudness, trim_silence
from tests.backend.audio.sounds import sing

RATE = 24_000


@pytest.mark.parametrize("gain", [0.01, 0.2, 1.0, 3.0])
def test_quiet_and_loud_end_up_alike(gain: float) -> None:
    levelled = normalise_loudness(gain * sing(3.0, RATE), RATE)
    assert measure_loudness(levelled.samples, RATE) == pytest.approx(-23.0, abs=0.1)
    assert not levelled.is_peak_limited


def test_peaks_come_before_loudness() -> None:
    samples = 0.01 * sing(3.0, RATE)
    samples[RATE] = 0.9
    levelled = normalise_loudness(samples, RATE)
    assert levelled.is_peak_limited
    assert 20 * math.log10(np.abs(levelled.samples).max()) == pytest.approx(-1.0, abs=0.01)


def test_the_gain_is_the_same_everywhere() -> None:
    samples = sing(2.0, RATE)
    levelled = normalise_loudness(samples, RATE)
    np.testing.assert_allclose(levelled.samples, samples * 10 ** (levelled.gain_db / 20), rtol=1e-5)


@pytest.mark.parametrize("num_samples", [0, 1, 100, RATE])
def test_silence_stays_silence(num_samples: int) -> None:
    silence = np.zeros(num_samples, np.float32)
    levelled = normalise_loudness(silence, RATE)
    assert levelled.loudness_lufs == -math.inf
    np.testing.assert_array_equal(levelled.samples, silence)


def test_sounds_shorter_than_a_measuring_block_are_levelled_too() -> None:
    levelled = normalise_loudness(0.05 * sing(0.1, RATE), RATE)
    assert math.isfinite(levelled.loudness_lufs)
    assert levelled.gain_db > 0


def test_silence_around_is_cut_to_a_tenth_of_a_second() -> None:
    sound = sing(2.0, RATE)
    samples = np.concatenate([np.zeros(RATE, np.float32), sound, np.zeros(2 * RATE, np.float32)])
    begin, end = audible_range(samples, RATE)
    assert begin / RATE == pytest.approx(0.9, abs=0.02)
    assert end / RATE == pytest.approx(3.1, abs=0.02)
    assert len(trim_silence(samples, RATE)) == end - begin


def test_faint_noise_around_is_cut_too() -> None:
    noise = 0.001 * np.random.default_rng(0).standard_normal(4 * RATE).astype(np.float32)
    noise[RATE : 3 * RATE] += sing(2.0, RATE)
    begin, end = audible_range(noise, RATE)
    assert begin / RATE == pytest.approx(0.9, abs=0.05)
    assert end / RATE == pytest.approx(3.1, abs=0.05)


def test_a_soft_last_consonant_is_kept() -> None:
    hiss = 0.01 * np.random.default_rng(0).standard_normal(RATE // 5).astype(np.float32)
    samples = np.concatenate([sing(2.0, RATE), hiss, np.zeros(RATE, np.float32)])
    _, end = audible_range(samples, RATE)
    assert end >= 2.2 * RATE


def test_where_the_background_is_loud_nothing_is_cut() -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(2 * RATE).astype(np.float32)
    assert audible_range(noise, RATE) == (0, len(noise))
