"""Charts: every value drawn, limits where they belong, words for those who cannot see them."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from training.charts import histogram, line_chart, ticks


def draw(values, limits=()):
    return histogram("Length <s>", values, unit="s", limits=limits)


def test_a_chart_without_points_is_empty():
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


def test_a_chart_can_show_nan_one_point_and_equal_values() -> None:
    for points in ([(1.0, float("nan"))], []):
        assert line_chart("t", {"a": points}) == ""
    for points in ([(1.0, 2.0)], [(1.0, 2.0), (2.0, 2.0)], [(1.0, float("inf")), (2.0, 1.0)]):
        ElementTree.fromstring(re.search(r"<svg.*?</svg>", line_chart("t", {"a": points}))[0])


def test_long_lines_are_thinned_and_keep_their_end() -> None:
    chart = line_chart("t", {"a": [(float(step), float(step)) for step in range(10_000)]})
    points = re.search(r'points="([^"]+)"', chart)[1].split()
    assert len(points) <= 601
    assert points[-1].startswith("708")


def test_ticks_are_round_and_span_the_range() -> None:
    assert ticks(0.13, 0.87) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    for low, high in ((0.0, 0.0), (5.0, 5.0), (-3.0, 1e6), (1e-9, 2e-9)):
        found = ticks(low, high)
        assert found[0] <= low
        assert found[-1] >= high
        assert len(found) <= 8


def test_a_chart_names_its_lines_only_where_there_are_several() -> None:
    line = [(1.0, 2.0), (2.0, 1.0)]
    assert 'class="key' not in line_chart("Gradient norm", {"gradient norm": line})
    assert line_chart("Loss", {"one": line, "other": line}).count('class="key') == 2
