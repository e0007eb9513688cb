"""Play buttons with their waveform: what is drawn is what sounds, and a file that cannot be read is flat."""

from __future__ import annotations

import numpy as np

from backend.audio.writing import write_wav
from tests.ui.recordings import RATE, write_voice
from ui.html.sound import NUM_BARS, envelope_of, length_in_words, sound_html


def test_the_waveform_is_that_of_the_file(tmp_path):
    half = np.concatenate([np.zeros(RATE), np.full(RATE, 0.5)]).astype(np.float32)
    write_wav(tmp_path / "half.wav", half, RATE)
    envelope = envelope_of(tmp_path / "half.wav")
    assert len(envelope) == NUM_BARS
    assert set(envelope[: NUM_BARS // 2 - 1]) == {0.0}
    assert set(envelope[NUM_BARS // 2 + 1 :]) == {1.0}


def test_a_file_that_changed_is_read_again(tmp_path):
    path = write_voice(tmp_path / "voice.wav", seconds=2.0)
    before = envelope_of(path)
    write_wav(path, np.zeros(RATE, np.float32), RATE)
    assert max(before) == 1.0
    assert max(envelope_of(path)) == 0.0


def test_what_is_no_wav_of_ours_is_flat(tmp_path):
    (tmp_path / "x.mp3").write_bytes(b"ID3")
    for name in ("x.mp3", "gone.wav"):
        assert envelope_of(tmp_path / name) == (0.0,) * NUM_BARS


def test_the_button_says_what_it_plays(tmp_path):
    html = sound_html(tmp_path / "a b.wav", "<Take>", voice="Iris", download="iris_t01.wav", length="0:05")
    assert html.count(f'="gradio_api/file={tmp_path}/a%20b.wav"') == 2
    assert 'aria-label="Play: &lt;Take&gt;"' in html
    assert 'data-download="iris_t01.wav"' in html


def test_lengths_are_written_as_players_do():
    assert [length_in_words(seconds) for seconds in (0.4, 5.4, 59.6, 61, 3600)] == [
        "0:00",
        "0:05",
        "1:00",
        "1:01",
        "60:00",
    ]
