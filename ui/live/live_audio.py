"""A take heard while it is made: 16-bit chunks that the page plays one after another.

Gradio's own streaming turns chunks into AAC with the ffmpeg program, which most machines lack, and starts after
seconds. Here the browser gets the samples themselves and plays them with the Web Audio API (`live_player.js`).
"""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import TypedDict

import gradio as gr
import numpy as np
from numpy.typing import NDArray

MAX_WINDOW_SECONDS = 20.0
KEPT_SECONDS = 10.0
"""A browser that is busy or in the background shows only the latest of several updates; what it missed of the
last ten seconds it then finds in the window."""

PLAYER_SCRIPT = Path(__file__).with_name("live_player.js")


class LiveWindow(TypedDict):
    """What the page gets with each update: base64 of little-endian int16 chunks, each followed by a comma.

    `first` counts the chunks of the speech before those in the window. Between two updates `chunks` mostly
    grows at its end, and Gradio sends only what was added. `url` and `download`, the address and the name of the
    finished file, are empty until there is one.

    `lead_seconds` is how much sound to have in hand before playing, by the engine's measured speed; None while nothing
    was measured. `sent_seconds` is when the window was made, on any clock: how unevenly windows arrive, the page finds
    out by it.
    """

    speech: str
    title: str
    voice: str
    sample_rate: int
    expected_seconds: float
    lead_seconds: float | None
    sent_seconds: float
    first: int
    chunks: str
    is_complete: bool
    url: str
    download: str


class LiveAudio:
    """Collects the chunks of one speech into windows."""

    def __init__(self, speech: str, sample_rate: int, *, title: str = "", voice: str = "") -> None:
        """Begin; `speech` tells this one from those before, `title` and `voice` are shown beside the player."""
        self._speech, self._title, self._voice = speech, title, voice
        self._sample_rate = sample_rate
        self._expected_seconds = 0.0
        self._lead_seconds: float | None = None
        self._first = 0
        self._chunks: list[tuple[float, str]] = []

    def add(
        self, chunk: NDArray[np.float32], expected_seconds: float = 0.0, lead_seconds: float | None = None
    ) -> LiveWindow:
        """Append mono samples (samples,) between -1 and 1; louder ones are clipped, nothing is normalised.

        Args:
            chunk: what follows.
            expected_seconds: how long the whole take will probably be; 0 where nothing is known.
            lead_seconds: how much sound to have in hand before playing; None where nothing was measured.
        """
        self._expected_seconds, self._lead_seconds = expected_seconds, lead_seconds
        integers = np.rint(np.clip(chunk, -1.0, 1.0) * 32767.0).astype("<i2")
        encoded = base64.b64encode(integers.tobytes()).decode("ascii")
        self._chunks.append((len(chunk) / self._sample_rate, f"{encoded},"))
        if self._seconds() > MAX_WINDOW_SECONDS:
            self._drop_oldest()
        return self._window(is_complete=False)

    def complete(self, url: str = "", download: str = "") -> LiveWindow:
        """The last window, which says that nothing more will come, and where the file is once there is one."""
        return self._window(is_complete=True, url=url, download=download)

    def _seconds(self) -> float:
        return sum(seconds for seconds, _ in self._chunks)

    def _drop_oldest(self) -> None:
        while self._seconds() - self._chunks[0][0] >= KEPT_SECONDS:
            del self._chunks[0]
            self._first += 1

    def _window(self, *, is_complete: bool, url: str = "", download: str = "") -> LiveWindow:
        return {
            "speech": self._speech,
            "title": self._title,
            "voice": self._voice,
            "sample_rate": self._sample_rate,
            "expected_seconds": self._expected_seconds,
            "lead_seconds": self._lead_seconds,
            "sent_seconds": time.monotonic(),
            "first": self._first,
            "chunks": "".join(encoded for _, encoded in self._chunks),
            "is_complete": is_complete,
            "url": url,
            "download": download,
        }


def build_live_player(stop_button_id: str) -> gr.HTML:
    """The component that plays windows; silent at once when the button with that id is pressed."""
    script = PLAYER_SCRIPT.read_text(encoding="utf-8").replace("STOP_BUTTON_ID", stop_button_id)
    return gr.HTML(
        value=None,
        html_template="",
        js_on_load=script,
        elem_id="live-player",
        elem_classes=["live-player"],
    )
