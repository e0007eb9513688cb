"""What is measured of a recording, and when it is called less than ideal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.audio.quality import (
    COMFORTABLE_SECONDS,
    MIN_DBFS,
    Concern,
    clipped_share,
    frame_levels_dbfs,
    peak_envelope,
    report_on,
)
from backend.audio.recording import Recording
from backend.dataset.clips.measures import measure_sound
from tests.ui.recordings import speak_like

RATE = 8_000


def recording_of(samples) -> Recording:
    return Recording(
        samples=np.asarray(samples, np.float32),
        sample_rate=RATE,
        source_name="voice.wav",
        source_sample_rate=RATE,
        source_channels=1,
        source_seconds=len(samples) / RATE,
        container="wav",
        codec="pcm_s16le",
    )


def test_a_clear_recording_raises_no_concern():
    report = report_on(recording_of(speak_like(8.0, rate=RATE)))
    assert report.concerns == ()
    assert report.seconds == 8.0
    assert report.speech_over_noise_db > 40


@pytest.mark.parametrize(
    ("samples", "concern"),
    [
        (speak_like(2.0, rate=RATE), Concern.SHORT),
        (speak_like(61.0, rate=RATE), Concern.LONG),
        (speak_like(8.0, rate=RATE, level=0.02, noise=1e-5), Concern.QUIET),
        (speak_like(8.0, rate=RATE, noise=0.05), Concern.NOISY),
        (np.clip(10 * speak_like(8.0, rate=RATE), -1, 1), Concern.CLIPPED),
    ],
    ids=lambda value: value.value if isinstance(value, Concern) else "",
)
def test_each_fault_is_found_and_no_other(samples, concern):
    assert report_on(recording_of(samples)).concerns == (concern,)


def test_the_limits_of_a_comfortable_length_are_comfortable():
    for seconds in COMFORTABLE_SECONDS:
        assert report_on(recording_of(speak_like(seconds, rate=RATE))).concerns == ()


def test_levels_are_those_of_the_signal():
    full_scale_square = np.ones(RATE, np.float32)
    assert frame_levels_dbfs(full_scale_square, RATE) == pytest.approx(0.0)
    assert frame_levels_dbfs(full_scale_square / 10, RATE) == pytest.approx(-20.0, abs=1e-4)
    assert (frame_levels_dbfs(np.zeros(RATE, np.float32), RATE) == MIN_DBFS).all()


@given(num_samples=st.integers(1, 2000), num_bars=st.integers(1, 300), seed=st.integers(0, 99))
def test_the_envelope_keeps_every_peak(num_samples, num_bars, seed):
    samples = np.random.default_rng(seed).uniform(-1.2, 1.2, num_samples).astype(np.float32)
    envelope = peak_envelope(samples, num_bars)
    assert len(envelope) == num_bars
    assert max(envelope) == pytest.approx(min(1.0, np.abs(samples).max()))
    assert all(0.0 <= peak <= 1.0 for peak in envelope)


def test_no_samples_make_a_flat_envelope():
    assert peak_envelope(np.zeros(0, np.float32), 3) == (0.0, 0.0, 0.0)


def test_clipped_share() -> None:
    assert clipped_share(np.array([0.2, 1.0, -1.0, 0.99], np.float32)) == 0.5
    assert clipped_share(np.zeros(0, np.float32)) == 0.0


def test_whatever_is_measured_is_clipped_at_the_same_level() -> None:
    """A peak that a codec left a little below full scale counts in takes, references and clips alike."""
    samples = np.tile(np.array([0.9985, 0.1, 0.2, 0.3], np.float32), RATE)
    assert clipped_share(samples) == 0.25
    assert report_on(recording_of(samples)).clipped_share == 0.25
    assert measure_sound(samples, RATE).clipped_share == 0.25
