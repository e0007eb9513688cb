from __future__ import annotations

import math

import pytest

from backend.audio.errors import AudioFormatError
from backend.audio.speed import check_speed


@pytest.mark.parametrize("speed", [0.25, 1, 4.0])
def test_possible_speeds_pass(speed):
    assert check_speed(speed) == speed


@pytest.mark.parametrize("speed", [0.0, -1.0, 0.2, 4.1, math.nan, math.inf])
def test_impossible_speeds_are_refused(speed):
    with pytest.raises(AudioFormatError, match=r"0\.25 to 4"):
        check_speed(speed)
