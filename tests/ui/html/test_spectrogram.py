"""Spectrograms: a tone is where it should be, and the bytes are a picture that any browser reads."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from ui.html.spectrogram import HEIGHT, MAX_HZ, WIDTH, spectrogram_html, spectrogram_png, write_png

RATE = 24_000


def read_png(content):
    """Pixels (rows, columns, 3) of a PNG without filters, every checksum verified."""
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    place, data, size = 8, b"", (0, 0)
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        kind, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        assert struct.unpack(">I", content[place + 8 + length : place + 12 + length]) == (zlib.crc32(kind + body),)
        if kind == b"IHDR":
            size = struct.unpack(">II", body[:8])
        data += body if kind == b"IDAT" else b""
        place += 12 + length
    columns, rows = size
    return (
        np.frombuffer(zlib.decompress(data), np.uint8).reshape(rows, 1 + 3 * columns)[:, 1:].reshape(rows, columns, 3)
    )


def test_what_is_written_is_read_back():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert (read_png(write_png(pixels)) == pixels).all()


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
