"""The picture of a voice: made of its sound, in its own colour, and never a reason to fail."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
from PIL import Image

from tests.ui.recordings import write_broken, write_voice
from ui.html.avatar import SIZE, avatar_html, hue_of


def picture(html):
    data = re.search(r"base64,([^\"]+)", html).group(1)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


def test_it_is_a_small_picture_of_the_sound(tmp_path):
    html = avatar_html(write_voice(tmp_path / "voice.wav"), "ann")
    assert picture(html).shape == (SIZE, SIZE, 3)
    assert len(html) < 8_000
    assert (
        picture(avatar_html(write_voice(tmp_path / "other.wav", seconds=1.0), "ann")).tolist() != picture(html).tolist()
    )


def test_a_voice_keeps_its_colour_and_others_have_another():
    assert hue_of("ann") == hue_of("ann")
    assert len({round(hue_of(name), 2) for name in ("iris", "owen", "rufus")}) == 3


def test_without_a_sound_there_is_the_colour_alone(tmp_path):
    for sound in (None, tmp_path / "gone.wav", write_broken(tmp_path / "broken.wav")):
        html = avatar_html(sound, "ann")
        assert "--hue:" in html
        assert "<img" not in html
