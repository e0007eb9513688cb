"""A spectrogram as an inline picture: a PNG drawn with numpy."""

from __future__ import annotations

import base64
import io

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from ui.html.templates import html

WIDTH, HEIGHT = 320, 96
WINDOW_SECONDS = 0.032
"""Long enough to tell the harmonics of most voices apart, short enough to see syllables begin."""

MAX_HZ = 8_000.0
"""Above there is little but hiss, and it would take half of the picture."""

RANGE_DB = 70.0

# From silence to loud; readable on white and on black.
_COLOURS = np.array([(13, 27, 42), (15, 76, 92), (17, 122, 101), (132, 184, 92), (250, 227, 130)], np.float64)


def spectrogram_html(samples: NDArray[np.float32], sample_rate: int, label: str) -> Markup:
    """An image of samples (samples,): time to the right, 0 to 8 kHz upwards; `label` is for screen readers."""
    encoded = base64.b64encode(spectrogram_png(samples, sample_rate)).decode("ascii")
    return html('<img class="spectrogram" alt="{}" src="data:image/png;base64,{}">', label, encoded)


def spectrogram_png(samples: NDArray[np.float32], sample_rate: int) -> bytes:
    """The same as the bytes of a PNG file."""
    content = io.BytesIO()
    Image.fromarray(_coloured(spectrum_levels(samples, sample_rate))).save(content, "PNG")
    return content.getvalue()


def spectrum_levels(samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float64]:
    """Share of the range, 0 to 1, of each pixel: (HEIGHT, WIDTH), the lowest frequency in the last row."""
    window = max(16, round(WINDOW_SECONDS * sample_rate))
    padded = np.pad(samples.astype(np.float64), (window // 2, window))
    starts = np.linspace(0, max(0, len(samples) - 1), WIDTH).astype(np.intp)
    frames = np.stack([padded[start : start + window] for start in starts]) * np.hanning(window)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    highest = min(MAX_HZ, sample_rate / 2)
    bins = np.linspace(0, highest * window / sample_rate, HEIGHT)
    below = np.minimum(bins.astype(np.intp), power.shape[1] - 2)
    part = np.clip(bins - below, 0.0, 1.0)
    rows = power[:, below] * (1 - part) + power[:, below + 1] * part
    decibels = 10.0 * np.log10(np.maximum(rows, 1e-12))
    loudest = float(decibels.max())
    # Of silence everything is the loudest there is, and shall still look silent.
    if loudest <= -60.0:
        return np.zeros((HEIGHT, WIDTH))
    levels: NDArray[np.float64] = np.clip((decibels - loudest) / RANGE_DB + 1.0, 0.0, 1.0).T[::-1]
    return levels


def _coloured(levels: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Levels between 0 and 1 (rows, columns) to red, green and blue (rows, columns, 3)."""
    places = np.linspace(0.0, 1.0, len(_COLOURS))
    channels = [np.interp(levels, places, _COLOURS[:, channel]) for channel in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)
