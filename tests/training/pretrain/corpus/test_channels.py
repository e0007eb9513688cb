import numpy as np
import pytest

from training.pretrain.corpus.channels import through_channel


@pytest.mark.parametrize("seed", range(8))
def test_a_channel_keeps_length_loudness_and_time(seed: int):
    random = np.random.default_rng(seed)
    speech = np.zeros(16_000, np.float32)
    speech[6000:9000] = 0.1 * np.random.default_rng(99).normal(size=3000)
    heard = through_channel(speech, random)
    assert heard.shape == speech.shape
    assert heard.dtype == np.float32
    assert np.abs(heard).max() <= 1
    assert np.square(heard).mean() == pytest.approx(float(np.square(speech).mean()), rel=0.2)
    correlation = np.correlate(np.abs(heard), np.abs(speech), "same")
    assert abs(int(correlation.argmax()) - 8000) < 400


def test_silence_stays_silent():
    assert not through_channel(np.zeros(100, np.float32), np.random.default_rng(0)).any()
