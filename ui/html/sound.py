"""Something to listen to: a play button for the page's player, and the waveform to seek in."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from markupsafe import Markup

from backend.audio.canonical import read_blocks
from backend.audio.quality import peak_envelope
from backend.errors import RecordingError
from ui.html.templates import render
from ui.html.waveform import waveform_svg
from ui.words.words import say

NUM_BARS = 96
_PARTS_PER_BLOCK = 400
_QUIETEST = 25
"""Of 255: silence stays flat."""

_MAX_REMEMBERED = 1000
"""Waveforms of 96 bytes each."""


def sound_html(place: Path, title: str, *, voice: str = "", download: str = "", length: str = "") -> Markup:
    """A sound of the page's folder as a row: play, waveform, length.

    Args:
        place: the file.
        title: what is heard; also the name of the button.
        voice: who speaks.
        download: what the file is called when it is saved.
        length: as it is shown; empty where it is told elsewhere.
    """
    wave = waveform_svg(envelope_of(place), say("player.waveform", title=title), seek=place)
    return render("sound", "sound", place=place, title=title, wave=wave, voice=voice, download=download, length=length)


def length_in_words(seconds: float) -> str:
    """A length as players write it: 0:05."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02}"


def envelope_of(place: Path) -> tuple[float, ...]:
    """The peaks of a WAV file of ours; flat for other files, and for one that is gone."""
    try:
        status = place.stat()
    except OSError:
        return (0.0,) * NUM_BARS
    levels = _levels(place, status.st_mtime_ns, status.st_size)
    # Quiet speech has a shape as well.
    loudest = max(*levels, _QUIETEST)
    return tuple(level / loudest for level in levels)


@lru_cache(maxsize=_MAX_REMEMBERED)
def _levels(place: Path, changed_at: int, num_bytes: int) -> bytes:
    """Peaks as bytes: what is remembered of a file is small. The other arguments tell one state of it from another."""
    parts: list[np.ndarray[tuple[int], np.dtype[np.float32]]] = []
    try:
        parts = [np.array(peak_envelope(block, _PARTS_PER_BLOCK), np.float32) for block in read_blocks(place)]
    except RecordingError:
        return bytes(NUM_BARS)
    peaks = peak_envelope(np.concatenate(parts) if parts else np.zeros(0, np.float32), NUM_BARS)
    return bytes(round(255 * peak) for peak in peaks)
