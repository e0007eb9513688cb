"""The picture of a voice: the spectrum of its own sound, wound around a disc, in a colour of its own."""

from __future__ import annotations

import base64
import colorsys
import hashlib
import io
from functools import lru_cache
from pathlib import Path

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from backend.audio.canonical import read_part
from backend.errors import RecordingError
from ui.html.spectrogram import spectrum_levels
from ui.html.templates import html

SIZE = 88
"""Pixels: twice what is shown, for dense screens."""

HEARD_SECONDS = 4.0
_NUM_COLOURS = 24
_MAX_REMEMBERED = 300
"""Pictures of some three kilobytes each."""


def avatar_html(sound: Path | None, key: str) -> Markup:
    """A disc for the voice called `key`; without a sound that can be read it has its colour alone."""
    picture = ""
    if sound is not None:
        try:
            status = sound.stat()
            picture = _picture(sound, status.st_mtime_ns, status.st_size, hue_of(key))
        except OSError:
            picture = ""
    style = f"--hue:{round(360 * hue_of(key))}"
    if not picture:
        return html('<span class="avatar" style="{}" aria-hidden="true"></span>', style)
    return html('<img class="avatar" style="{}" alt="" width="44" height="44" src="{}">', style, picture)


def hue_of(key: str) -> float:
    """The colour of a voice, 0 to 1 around the wheel: always the same."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[11:13]) / 65536


@lru_cache(maxsize=_MAX_REMEMBERED)
def _picture(sound: Path, changed_at: int, num_bytes: int, hue: float) -> str:
    """A data address; empty where the file is none of ours. The other arguments tell one state of it from another."""
    try:
        samples, sample_rate = read_part(sound, 0.0, HEARD_SECONDS)
    except RecordingError:
        return ""
    content = io.BytesIO()
    disc = Image.fromarray(_wound(spectrum_levels(samples, sample_rate), hue))
    disc.quantize(_NUM_COLOURS).save(content, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode('ascii')}"


def _wound(levels: NDArray[np.float64], hue: float) -> NDArray[np.uint8]:
    """Levels (frequencies, times), the lowest frequency last, as a disc of colours (SIZE, SIZE, 3).

    Time runs around it from the top, frequency from the rim to the middle.
    """
    place = (np.arange(SIZE) - (SIZE - 1) / 2) / (SIZE / 2)
    x, y = np.meshgrid(place, place)
    angle = np.mod(np.arctan2(x, -y) / (2 * np.pi), 1.0)
    depth = np.clip(1.0 - np.hypot(x, y), 0.0, 1.0)
    rows, columns = levels.shape
    level = levels[
        np.clip(((1.0 - depth) * (rows - 1)).round().astype(np.intp), 0, rows - 1),
        np.clip((angle * columns).astype(np.intp), 0, columns - 1),
    ]
    steps = [colorsys.hls_to_rgb((hue + turn) % 1.0, light, 0.62) for turn, light in _STEPS]
    places = np.linspace(0.0, 1.0, len(steps))
    channels = [np.interp(level, places, [step[channel] for step in steps]) for channel in range(3)]
    disc: NDArray[np.uint8] = np.rint(255 * np.stack(channels, axis=-1)).astype(np.uint8)
    return disc


_STEPS = ((0.0, 0.16), (0.02, 0.28), (0.06, 0.46), (0.12, 0.66), (0.16, 0.86))
"""From silence to loud: turn of the hue, and lightness."""
