"""The watermark's benchmark plans the same takes each time, and its page tells the truth about its pairs."""

from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import pytest
import soundfile

from backend.watermark.detector import detect
from tests.benchmarks.watermark_found import share
from tests.benchmarks.watermark_listening import NUM_PAIRS, listening_page
from tests.benchmarks.watermark_takes import RATE, plan_takes
from tests.ui.recordings import speak_like

VOICES = ("iris", "owen")


def test_more_takes_begin_with_the_same_ones():
    assert plan_takes(VOICES, 40)[:7] == plan_takes(VOICES, 7)
    singles = plan_takes(VOICES, 5, is_single=True, first=100)
    assert [take.number for take in singles] == [100, 101, 102, 103, 104]
    assert all(take.text.count(".") + take.text.count("?") + take.text.count("!") == 1 for take in singles)


@pytest.mark.parametrize(("count", "of"), [(0, 10), (5, 10), (10, 10), (999, 1000)])
def test_a_share_lies_in_its_interval(count, of):
    said = re.fullmatch(rf"{count} of {of}, ([\d.]+) % \(([-\d.]+) to ([\d.]+)\)", share(count, of))
    percent, low, high = map(float, said.groups())
    assert -0.05 <= low <= percent <= high <= 100.05
    assert low < high


def test_the_page_hides_which_is_marked_and_tells_it_at_the_end():
    heard = speak_like(4.0, noise=3e-3)
    takes = [(take, np.roll(heard, 997 * take.number)) for take in plan_takes(VOICES, NUM_PAIRS + 2)]
    page = listening_page(takes, seed=3)
    answers = json.loads(re.search(r"const marked = (\[.*?\]);", page)[1])
    sounds = re.findall(r'value="([AB])".*?base64,([A-Za-z0-9+/=]+)"', page, re.DOTALL)
    assert len(answers) == NUM_PAIRS
    assert set(answers) == {"A", "B"}
    found = []
    for letter, content in sounds:
        samples, rate = soundfile.read(io.BytesIO(base64.b64decode(content)), dtype="float32")
        assert rate == RATE
        if detect(samples, rate).is_marked:
            found.append(letter)
    assert (len(sounds), found) == (2 * NUM_PAIRS, answers)
    assert "http" not in page
    assert listening_page(takes, seed=4) != page
