from __future__ import annotations

import numpy as np
import pytest

from tests.backend.audio.test_encoding import PITCH_HZ, pitch, tone
from training.tempo import Tempo, at_tempo, length_at

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


@pytest.mark.parametrize("speed", [0.93, 1.0, 1.2])
@pytest.mark.parametrize("num_samples", [1, 700, 24_001])
def test_a_whole_sound_has_the_length_that_its_speed_gives(num_samples, speed):
    samples = tone(SAMPLE_RATE, 2.0)[:num_samples]
    assert len(at_tempo(samples, speed, SAMPLE_RATE)) == length_at(num_samples, speed) == round(num_samples / speed)


def test_a_whole_sound_begins_and_ends_where_it_did():
    silence = np.zeros(SAMPLE_RATE // 2, dtype=np.float32)
    changed = at_tempo(np.concatenate((silence, tone(SAMPLE_RATE, 1.0), silence)), 0.8, SAMPLE_RATE)
    sounding = np.flatnonzero(np.abs(changed) > 0.05) / SAMPLE_RATE
    assert sounding[0] == pytest.approx(0.5 / 0.8, abs=0.05)
    assert sounding[-1] == pytest.approx(1.5 / 0.8, abs=0.05)
