from __future__ import annotations

import math

import numpy as np
import pytest

from backend.audio.errors import AudioFormatError
from backend.audio.tempo import Tempo
from tests.backend.audio.test_encoding import PITCH_HZ, pitch, tone

SAMPLE_RATE = 24_000


def change_speed(samples, sample_rate, speed):
    """A whole take at another speed."""
    tempo = Tempo(speed, sample_rate)
    return np.concatenate((tempo.add(samples), tempo.finish()))


@pytest.mark.parametrize("speed", [0.25, 0.6, 1.25, 2.0, 3.0, 4.0])
def test_speed_changes_length_and_not_pitch(speed):
    samples = tone(SAMPLE_RATE, 3.0)
    changed = change_speed(samples, SAMPLE_RATE, speed)
    # The filter works on pieces of some hundredths of a second; the stages of slow speech multiply what is missing.
    assert len(changed) / SAMPLE_RATE == pytest.approx(3.0 / speed, abs=0.15)
    assert pitch(changed, SAMPLE_RATE) == pytest.approx(PITCH_HZ, abs=5)


def test_a_stream_is_changed_like_the_whole():
    samples = tone(SAMPLE_RATE, 2.0)
    tempo = Tempo(1.5, SAMPLE_RATE)
    pieces = [tempo.add(samples[start : start + 1000]) for start in range(0, len(samples), 1000)]
    assert sum(map(len, pieces[: len(pieces) // 2])) > SAMPLE_RATE / 3
    streamed = np.concatenate([*pieces, tempo.finish()])
    assert np.array_equal(streamed, change_speed(samples, SAMPLE_RATE, 1.5))


def test_the_ordinary_speed_changes_nothing():
    samples = tone(SAMPLE_RATE)
    assert np.array_equal(change_speed(samples, SAMPLE_RATE, 1.0), samples)


@pytest.mark.parametrize("speed", [0.25, 1.0, 2.0])
def test_nothing_stays_nothing(speed):
    assert len(change_speed(np.zeros(0, dtype=np.float32), SAMPLE_RATE, speed)) == 0


@pytest.mark.parametrize("speed", [0.0, -1.0, 0.2, 4.1, math.nan, math.inf])
def test_impossible_speeds_are_refused(speed):
    with pytest.raises(AudioFormatError, match=r"0\.25 to 4"):
        Tempo(speed, SAMPLE_RATE)
