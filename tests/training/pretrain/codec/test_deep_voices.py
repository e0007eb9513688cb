import numpy as np
import pytest
import torch

from tests.benchmarks.pitch import pitch_track
from training.pretrain.codec.deep_voices import PITCH_RANGE_HZ, deepened
from training.pretrain.codec.frame_features import FrameFeatures

RATE_HZ = 16_000


def voice(pitch_hz: float, seconds: float = 1.5) -> np.ndarray:
    """Pulses through two formants."""
    place = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    harmonics = np.arange(1, int(5000 / pitch_hz))[:, None] * pitch_hz
    strengths = sum(np.exp(-(((harmonics - formant) / 200) ** 2)) for formant in (600, 1700)) + 0.02
    sound = (strengths * np.cos(2 * np.pi * harmonics * place)).sum(axis=0)
    return (0.1 * sound / sound.std()).astype(np.float32)


def median_pitch(samples: np.ndarray) -> float:
    pitch = pitch_track(samples)
    return float(np.median(pitch[pitch > 0]))


def formant_hz(samples: np.ndarray) -> float:
    """The mean of the spectrum below 1,200 Hz."""
    power = np.abs(np.fft.rfft(samples)) ** 2
    hz = np.fft.rfftfreq(len(samples), 1 / RATE_HZ)
    is_low = hz < 1200
    return float((power[is_low] * hz[is_low]).sum() / power[is_low].sum())


@pytest.mark.parametrize("pitch_hz", [110.0, 130.0, 190.0])
def test_a_voice_becomes_deep_and_keeps_words_pace_and_loudness(pitch_hz: float):
    speech = voice(pitch_hz)
    found = [deepened(speech, pitch_hz, np.random.default_rng(seed)) for seed in range(12)]
    made = [one for one in found if one is not None]
    assert made
    low, high = PITCH_RANGE_HZ
    for one in made:
        assert one.dtype == np.float32
        assert len(one) == len(speech)
        assert np.square(one).mean() == pytest.approx(np.square(speech).mean(), rel=0.05)
        pitch = median_pitch(one)
        assert 0.95 * low < pitch < min(1.05 * high, pitch_hz)
        # A tract that is longer by a fifth of what the pitch has lost, within what harmonics so far apart can show.
        assert formant_hz(one) > formant_hz(speech) * (pitch / pitch_hz) ** 0.5


def test_what_is_deep_or_has_no_pitch_or_is_far_too_high_stays():
    speech = voice(60.0)
    for seed in range(12):
        for pitch_hz in (60.0, None, 400.0):
            assert deepened(speech, pitch_hz, np.random.default_rng(seed)) is None


@pytest.mark.parametrize("pitch_hz", [75.0, 110.0, 220.0])
def test_the_median_pitch_is_measured(pitch_hz: float):
    assert FrameFeatures(RATE_HZ).median_pitch_hz(torch.from_numpy(voice(pitch_hz))) == pytest.approx(
        pitch_hz, rel=0.03
    )


def test_noise_has_no_pitch():
    noise = torch.randn(RATE_HZ, generator=torch.Generator().manual_seed(0)) / 10
    assert FrameFeatures(RATE_HZ).median_pitch_hz(noise) is None
