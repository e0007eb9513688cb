"""Moments of two takes that belong together: measured on a recording and on the same one with a pause in it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from backend.comparisons.time_alignment import NUM_MOMENTS, aligned_times
from backend.voices.reference import read_reference
from backend.voices.samples import get_sample


@pytest.fixture(scope="module")
def spoken():
    recording = read_reference(get_sample("owen").path)
    return recording.samples[: 6 * recording.sample_rate], recording.sample_rate


def test_a_pause_in_one_take_moves_what_comes_after_it(spoken):
    samples, rate = spoken
    paused = np.concatenate([samples[: 3 * rate], np.zeros(rate, np.float32), samples[3 * rate :]])
    first, second = aligned_times([(samples, rate), (paused, rate)])
    assert len(first) == len(second) == NUM_MOMENTS
    for ours, theirs in zip(first, second, strict=True):
        if abs(ours - 3.0) > 0.2:
            assert theirs == pytest.approx(ours if ours < 3.0 else ours + 1.0, abs=0.1)


def test_marks_begin_and_end_with_the_take_and_never_go_back(spoken):
    samples, rate = spoken
    for other in (samples[: 2 * rate], samples[::-1].copy(), np.zeros(rate, np.float32)):
        marks = aligned_times([(samples, rate), (other, rate)])[1]
        assert marks[0] == 0.0
        assert marks[-1] == pytest.approx(len(other) / rate)
        assert all(after >= before for before, after in pairwise(marks))


def test_a_take_without_sound_has_marks_as_well(spoken):
    samples, rate = spoken
    assert aligned_times([(np.zeros(0, np.float32), rate), (samples, rate)])[1][-1] == pytest.approx(6.0)
    assert aligned_times([(samples, rate), (np.zeros(0, np.float32), rate)])[1] == [0.0] * NUM_MOMENTS
