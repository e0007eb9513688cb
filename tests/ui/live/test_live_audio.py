"""Live audio: whatever the browser misses in between, the samples it ends up with are those that were made."""

from __future__ import annotations

import base64

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ui.live.live_audio import KEPT_SECONDS, MAX_WINDOW_SECONDS, LiveAudio

RATE = 1_000


class Browser:
    """What live_player.js does with windows."""

    def __init__(self):
        self.chunks = []

    def receive(self, window):
        chunks = window["chunks"].split(",")[:-1]
        assert window["first"] <= len(self.chunks), "a gap"
        fresh = chunks[len(self.chunks) - window["first"] :]
        self.chunks += [np.frombuffer(base64.b64decode(chunk), "<i2") for chunk in fresh]


def chunks_of(lengths):
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, length).astype(np.float32) for length in lengths]


@given(st.lists(st.integers(1, 2 * RATE), min_size=1, max_size=60), st.data())
def test_a_browser_that_misses_updates_gets_every_sample_once(lengths, data):
    live, browser, missed = LiveAudio("speech", RATE), Browser(), 0.0
    made = chunks_of(lengths)
    for chunk in made:
        window = live.add(chunk)
        missed += len(chunk) / RATE
        # The window begins at most KEPT_SECONDS ago, so as much may be missed, but for one chunk.
        if missed + 2 > KEPT_SECONDS or data.draw(st.booleans()):
            browser.receive(window)
            missed = 0.0
    browser.receive(live.complete())
    assert np.concatenate(browser.chunks).tolist() == np.rint(np.concatenate(made) * 32767).tolist()


@given(st.lists(st.integers(1, 2 * RATE), min_size=1, max_size=60))
def test_a_window_stays_small_and_mostly_grows_at_its_end(lengths):
    live, before, num_restarts = LiveAudio("speech", RATE), None, 0
    for chunk in chunks_of(lengths):
        window = live.add(chunk)
        num_samples = sum(len(base64.b64decode(part)) // 2 for part in window["chunks"].split(","))
        assert num_samples <= MAX_WINDOW_SECONDS * RATE
        num_restarts += before is not None and not window["chunks"].startswith(before["chunks"])
        before = window
    # Gradio sends only what was appended, unless the window was cut.
    assert num_restarts <= sum(lengths) / RATE / (MAX_WINDOW_SECONDS - KEPT_SECONDS - 2)


def test_loud_samples_are_clipped_and_quiet_ones_left_alone():
    window = LiveAudio("speech", RATE).add(np.array([0.0, 0.001, -0.001, 1.0, -1.0, 3.0, -3.0], np.float32))
    samples = np.frombuffer(base64.b64decode(window["chunks"].rstrip(",")), "<i2")
    assert samples.tolist() == [0, 33, -33, 32767, -32767, 32767, -32767]


def test_only_the_last_window_is_complete():
    live = LiveAudio("speech", RATE)
    assert not live.add(np.zeros(3, np.float32))["is_complete"]
    assert live.complete()["is_complete"]


def test_the_lead_is_what_was_told_last():
    live = LiveAudio("speech", RATE)
    assert live.add(np.zeros(3, np.float32))["lead_seconds"] is None
    assert live.add(np.zeros(3, np.float32), 2.0, 0.5)["lead_seconds"] == 0.5
    assert live.complete()["lead_seconds"] == 0.5
