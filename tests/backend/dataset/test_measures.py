"""Measures of sounds whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray

from backend.dataset.measures import fingerprint_similarity, measure_sound, sound_fingerprint
from tests.backend.dataset.speechlike import RATE, speechlike


def test_a_telephone_is_told_by_its_band_and_not_by_its_rate():
    wide = speechlike(1)
    narrow = soxr.resample(soxr.resample(wide, RATE, 8_000), 8_000, RATE)
    assert measure_sound(wide, RATE).bandwidth_hz > 9_000
    assert 3_000 < measure_sound(narrow, RATE).bandwidth_hz < 4_200


@pytest.mark.parametrize("noise_dbfs", [-50.0, -35.0])
def test_noise_is_measured_where_nobody_speaks(noise_dbfs: float):
    noise = np.random.default_rng(5).normal(size=4 * RATE).astype(np.float32) * 10 ** (noise_dbfs / 20)
    assert measure_sound(speechlike(1) + noise, RATE).noise_dbfs == pytest.approx(noise_dbfs, abs=2.0)


def test_clipping_and_silence_are_shares():
    loud = np.clip(speechlike(1) * 40, -1, 1)
    half_silent = np.concatenate([speechlike(1), np.zeros(4 * RATE, np.float32)])
    assert measure_sound(speechlike(1), RATE).clipped_share == 0
    assert measure_sound(loud, RATE).clipped_share > 0.01
    assert measure_sound(half_silent, RATE).silence_share > measure_sound(speechlike(1), RATE).silence_share + 0.3


@pytest.mark.parametrize(
    "change",
    [
        lambda sound: sound * 0.2,
        lambda sound: np.concatenate([np.zeros(RATE // 10, np.float32), sound]),
        lambda sound: sound + np.random.default_rng(2).normal(size=len(sound)).astype(np.float32) * 0.0005,
        lambda sound: soxr.resample(soxr.resample(sound, RATE, 16_000), 16_000, RATE),
    ],
    ids=["quieter", "later", "noisier", "resampled"],
)
def test_the_same_recording_is_recognised(change):
    sound: NDArray[np.float32] = speechlike(1)
    assert fingerprint_similarity(sound_fingerprint(sound, RATE), sound_fingerprint(change(sound), RATE)) > 0.8


def test_other_recordings_are_not_the_same():
    prints = [sound_fingerprint(speechlike(seed), RATE) for seed in range(6)]
    for index, one in enumerate(prints):
        for other in prints[index + 1 :]:
            assert fingerprint_similarity(one, other) < 0.75
    longer = sound_fingerprint(np.concatenate([speechlike(1), speechlike(2)]), RATE)
    assert fingerprint_similarity(prints[1], longer) == 0


@pytest.mark.parametrize("num_samples", [1, 100, 5_000])
def test_very_short_clips_are_measured_too(num_samples: int):
    measures = measure_sound(np.full(num_samples, 0.1, np.float32), RATE)
    assert 0 <= fingerprint_similarity(measures.fingerprint, measures.fingerprint) <= 1
