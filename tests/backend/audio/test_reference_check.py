from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from backend.audio.limits import ReferenceLimits
from backend.audio.quality import check_reference
from backend.audio.recording import Recording
from backend.errors import RecordingDamaged, RecordingError, RecordingSilent, RecordingTooLong, RecordingTooShort
from tests.backend.audio.sounds import sing

RATE = 8_000


def recording_of(samples: NDArray[np.float32]) -> Recording:
    return Recording(
        samples=samples,
        sample_rate=RATE,
        source_name="take.wav",
        source_sample_rate=RATE,
        source_channels=1,
        source_seconds=len(samples) / RATE,
        container="wav",
        codec="pcm_s16le",
    )


def test_a_voice_at_8_khz_passes() -> None:
    check_reference(recording_of(sing(2.0, RATE)))


@given(st.floats(-35.0, 17.0), st.integers(0, 20), st.integers(0, 20))
def test_speech_passes_at_any_sensible_level_and_among_any_pauses(peak_dbfs: float, before: int, after: int) -> None:
    speech = sing(1.0, RATE)
    speech *= 10 ** (peak_dbfs / 20) / np.abs(speech).max()
    check_reference(recording_of(np.pad(speech, (before * RATE, after * RATE))))


@given(st.floats(-200.0, -61.0))
def test_a_muted_microphone_is_silent_and_its_level_is_told(peak_dbfs: float) -> None:
    hum = (np.sin(np.arange(2 * RATE)) * 10 ** (peak_dbfs / 20)).astype(np.float32)
    with pytest.raises(RecordingSilent, match=r"peak is (-\d+) dBFS"):
        check_reference(recording_of(hum))


def test_digital_silence() -> None:
    with pytest.raises(RecordingSilent, match="digital silence"):
        check_reference(recording_of(np.zeros(2 * RATE, np.float32)))


def test_hiss_with_a_click_is_silent_too() -> None:
    hiss = np.random.default_rng(0).normal(0.0, 1e-3, 5 * RATE).astype(np.float32)
    hiss[RATE] = 0.05
    with pytest.raises(RecordingSilent, match="loudest second is -59 dBFS"):
        check_reference(recording_of(hiss))


def test_too_short_and_too_long_to_the_sample() -> None:
    check_reference(recording_of(sing(1.0, RATE)))
    limits = ReferenceLimits(max_seconds=3.0)
    check_reference(recording_of(sing(3.0, RATE)), limits)
    with pytest.raises(RecordingTooShort, match=r"lasts 0\.9 s"):
        check_reference(recording_of(sing(1.0, RATE)[:-1]))
    with pytest.raises(RecordingTooLong, match=r"it is 3\.1 s"):
        check_reference(recording_of(np.append(sing(3.0, RATE), np.float32(0.1))), limits)


def test_an_empty_recording_is_too_short() -> None:
    with pytest.raises(RecordingTooShort, match=r"lasts 0\.0 s"):
        check_reference(recording_of(np.zeros(0, np.float32)))


@given(st.integers(0, 2 * RATE - 1), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_one_sample_that_is_no_number(position: int, value: float) -> None:
    samples = sing(2.0, RATE)
    samples[position] = value
    with pytest.raises(RecordingDamaged, match="not numbers"):
        check_reference(recording_of(samples))


@pytest.mark.parametrize("scale", [32_768.0, 1e30])
def test_integers_stored_as_floats(scale: float) -> None:
    with pytest.raises(RecordingDamaged, match="times full scale"):
        check_reference(recording_of(sing(2.0, RATE) * np.float32(scale)))


@given(st.lists(st.floats(width=32), max_size=50), st.integers(0, 3 * RATE))
def test_whatever_passes_is_long_enough_and_heard(values: list[float], num_repeats: int) -> None:
    samples = np.tile(np.array(values, np.float32), 1 + num_repeats // max(1, len(values)))
    with contextlib.suppress(RecordingError):
        check_reference(recording_of(samples))
        assert np.isfinite(samples).all()
        assert len(samples) >= RATE
        assert np.abs(samples).max() >= 1e-3
