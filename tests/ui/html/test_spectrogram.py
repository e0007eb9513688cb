"""Spectrograms: a tone is where it should be, and the bytes are a picture that any browser reads."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from ui.html.spectrogram import HEIGHT, MAX_HZ, WIDTH, spectrogram_html, spectrogram_png

RATE = 24_000


def read_png(content):
    """Pixels (rows, columns, 3)."""
    return np.asarray(Image.open(io.BytesIO(content)))


@pytest.mark.parametrize("frequency_hz", [500, 2_000, 6_000])
def test_a_tone_is_a_line_at_its_frequency(frequency_hz):
    time = np.arange(RATE) / RATE
    pixels = read_png(spectrogram_png(np.sin(2 * np.pi * frequency_hz * time).astype(np.float32), RATE))
    brightness = pixels.sum(axis=2).mean(axis=1)
    expected = (HEIGHT - 1) * (1 - frequency_hz / MAX_HZ)
    assert abs(int(brightness.argmax()) - expected) <= 1.5
    assert brightness.max() > 2 * np.median(brightness)


def test_a_sound_that_begins_late_is_on_the_right():
    samples = np.zeros(RATE, np.float32)
    samples[RATE // 2 :] = np.random.default_rng(0).normal(0, 0.1, RATE // 2)
    brightness = read_png(spectrogram_png(samples, RATE)).sum(axis=(0, 2)).astype(float)
    assert brightness[WIDTH * 3 // 4] > 1.5 * brightness[WIDTH // 4]


@pytest.mark.parametrize("num_samples", [0, 1, 100, RATE])
def test_silence_and_the_shortest_sounds_are_dark_pictures(num_samples):
    pixels = read_png(spectrogram_png(np.zeros(num_samples, np.float32), RATE))
    assert pixels.shape == (HEIGHT, WIDTH, 3)
    assert (pixels == pixels[0, 0]).all()


def test_screen_readers_are_told_what_it_is():
    assert 'alt="Take &lt;A&gt;"' in spectrogram_html(np.zeros(10, np.float32), RATE, "Take <A>")
