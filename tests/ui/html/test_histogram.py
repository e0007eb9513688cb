"""Distributions as pictures: every clip counted, limits where they belong, words for who cannot see them."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from ui.html.histogram import Distribution, histogram_svg


def draw(values, limits=()):
    return histogram_svg(Distribution(title="Length <s>", unit="s", values=values, limits=limits))


def test_nothing_is_drawn_of_nothing():
    assert draw([]) == ""
    assert draw([math.nan, math.inf]) == ""


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0, 2.0], [1.0, 2.0, 10.0, math.nan]])
def test_it_is_a_picture_with_words(values):
    svg = draw(values)
    picture = ElementTree.fromstring(svg).find("svg")
    assert picture.attrib["role"] == "img"
    assert "half of the clips below" in picture.attrib["aria-label"]
    bars = picture.findall("rect")
    assert 1 <= len(bars) <= len(values)
    for bar in bars:
        assert 0 <= float(bar.attrib["x"]) <= 320
        assert 0 <= float(bar.attrib["y"]) <= 110


def test_bars_are_as_high_as_there_are_clips():
    heights = [float(height) for height in re.findall(r'height="([\d.]+)"/>', draw([1.0, 1.0, 1.0, 1.0, 9.0]))]
    assert heights[0] == pytest.approx(4 * heights[1], rel=0.05)


def test_limits_far_off_are_left_out():
    assert draw([4.0, 5.0], limits=(5.5,)).count("<line") == 1
    assert "<line" not in draw([4.0, 5.0], limits=(1000.0,))
