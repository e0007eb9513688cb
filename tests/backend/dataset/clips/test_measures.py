"""Measures of sounds whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import soxr

from backend.dataset.clips.measures import measure_sound
from tests.backend.dataset.speechlike import RATE, speechlike


def test_a_telephone_is_told_by_its_band_and_not_by_its_rate():
    wide = speechlike(1)
    narrow = soxr.resample(soxr.resample(wide, RATE, 8_000), 8_000, RATE)
    assert measure_sound(wide, RATE).bandwidth_hz > 9_000
    assert 3_000 < measure_sound(narrow, RATE).bandwidth_hz < 4_200


@pytest.mark.parametrize("noise_dbfs", [-50.0, -35.0])
def test_noise_is_measured_between_words(noise_dbfs: float):
    noise = np.random.default_rng(5).normal(size=4 * RATE).astype(np.float32) * 10 ** (noise_dbfs / 20)
    assert measure_sound(speechlike(1) + noise, RATE).noise_dbfs == pytest.approx(noise_dbfs, abs=2.0)


def test_clipping_and_silence_are_shares():
    loud = np.clip(speechlike(1) * 40, -1, 1)
    half_silent = np.concatenate([speechlike(1), np.zeros(4 * RATE, np.float32)])
    assert measure_sound(speechlike(1), RATE).clipped_share == 0
    assert measure_sound(loud, RATE).clipped_share > 0.01
    assert measure_sound(half_silent, RATE).silence_share > measure_sound(speechlike(1), RATE).silence_share + 0.3


@pytest.mark.parametrize("num_samples", [1, 100, 5_000])
def test_very_short_clips_are_measured_too(num_samples: int):
    measures = measure_sound(np.full(num_samples, 0.1, np.float32), RATE)
    assert len(measures.fingerprint) >= 4
