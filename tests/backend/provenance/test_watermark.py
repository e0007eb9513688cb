"""What is left when the statement is lost: the mark in the sound, its parts, and the take it belongs to."""

from __future__ import annotations

import numpy as np
import pytest

from backend.audio.canonical import CANONICAL_HZ, store_recording
from backend.audio.decoding import decode_recording
from backend.audio.encoding import encode
from backend.audio.writing import write_wav
from backend.provenance.check import Checker
from backend.watermark.marker import Marker
from tests.ui.recordings import RATE, speak_like

KEY = bytes(range(32))
PAYLOAD = 4711


@pytest.fixture(scope="module")
def marked():
    marker = Marker(RATE, installation_key=KEY, payload=PAYLOAD)
    spoken = speak_like(12.0, noise=3e-3)
    return np.concatenate([marker.add(spoken), marker.finish()])


def test_the_mark_is_found_without_a_statement_and_says_where_it_is(marked, tmp_path):
    path = tmp_path / "cut.wav"
    write_wav(path, np.concatenate([speak_like(6.0, noise=3e-3), marked]), RATE)
    verdict = Checker(installation_key=KEY).check(path)
    assert (verdict.is_made_by_encore, verdict.signed, verdict.comment) == (True, None, None)
    assert verdict.watermark.log10_p < -6
    assert verdict.watermark.payload == PAYLOAD
    assert 4.0 < verdict.watermark.parts[0].start_seconds < 9.0
    assert "certain to 1 in 10^" in verdict.lines[0]
    assert "this installation made it" in verdict.lines[0]


def test_another_installation_sees_the_mark_but_not_the_take(marked, tmp_path):
    path = tmp_path / "sent.mp3"
    path.write_bytes(encode(marked, RATE, "mp3"))
    verdict = Checker(installation_key=bytes(32)).check(path)
    assert (verdict.is_made_by_encore, verdict.watermark.payload) == (True, None)


def test_it_is_recognised_in_a_sample_and_in_a_dataset(marked, tmp_path):
    path = tmp_path / "sample.wav"
    write_wav(path, marked, RATE)
    checker = Checker()
    assert checker.judge(path, decode_recording(path, sample_rate=CANONICAL_HZ)).is_made_by_encore
    stored = store_recording(path, tmp_path / "canonical.wav")
    assert checker.judge(path, stored).is_made_by_encore


def test_what_is_not_marked_is_not_called_marked(tmp_path):
    path = tmp_path / "real.wav"
    write_wav(path, speak_like(10.0), RATE)
    assert Checker().check(path).watermark is None
