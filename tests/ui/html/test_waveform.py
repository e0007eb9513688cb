"""The picture of a waveform: well-formed, labelled, inside its frame."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from ui.html.waveform import BAR_STEP, HEIGHT, MIN_BAR, waveform_svg

PEAKS = st.lists(st.floats(-1.0, 2.0), max_size=50)


@given(PEAKS, st.text(st.characters(exclude_categories=("Cs", "Cc"))))
def test_it_is_one_labelled_image_whatever_the_label(envelope, label):
    image = ElementTree.fromstring(waveform_svg(envelope, label))
    assert image.get("role") == "img"
    assert image.get("aria-label") == label


@given(PEAKS)
def test_each_peak_is_a_bar_inside_the_frame(envelope):
    path = ElementTree.fromstring(waveform_svg(envelope, "x")).find("path")
    assert path is not None
    bars = re.findall(r"M([\d.]+) ([\d.]+)h[\d.]+v([\d.]+)h-[\d.]+z", path.get("d", ""))
    assert [float(left) for left, _, _ in bars] == [index * BAR_STEP for index in range(len(envelope))]
    for (_, top, height), peak in zip(bars, envelope, strict=True):
        assert MIN_BAR <= float(height) <= HEIGHT
        assert 0 <= float(top) <= HEIGHT - float(height) + 0.1
        assert float(height) == max(MIN_BAR, round(min(max(peak, 0), 1) * HEIGHT, 1))
