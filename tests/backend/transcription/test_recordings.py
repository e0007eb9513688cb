"""Long recordings are heard in pieces that never divide a span of speech, with times of the whole."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from backend.audio.canonical import CANONICAL_HZ, resample
from backend.audio.voice_activity import SpeechSpan
from backend.audio.writing import write_wav
from backend.transcription.recordings import cut_into_pieces, find_speech_in, transcribe_recording
from backend.transcription.transcriber import TRANSCRIBER_HZ
from backend.transcription.transcript import Passage, Transcript, Word, assemble_transcript
from backend.transcription.whisper_transcriber import split_at_quiet_moments
from tests.backend.audio.sounds import sing
from tests.backend.audio.speech import FLITE_HZ, speak, with_pauses

PIECE_SECONDS = 10.0


class Listener:
    """Reports one word per piece that spans its loud part, and remembers what it was given."""

    name = "listener"
    piece_seconds = PIECE_SECONDS

    def __init__(self) -> None:
        self.languages: list[str | None] = []
        self.lengths: list[float] = []

    def transcribe(self, samples_16k: NDArray[np.float32], language: str | None = None) -> Transcript:
        self.languages.append(language)
        self.lengths.append(len(samples_16k) / TRANSCRIBER_HZ)
        loud = np.flatnonzero(np.abs(samples_16k) > 0.01) / TRANSCRIBER_HZ
        word = Word(text=f"w{len(self.lengths)}", start_seconds=float(loud[0]), end_seconds=float(loud[-1]))
        passage = Passage(
            start_seconds=0.0,
            end_seconds=self.lengths[-1],
            no_speech_probability=0.0,
            compression_ratio=1.0,
            mean_log_probability=-0.1,
        )
        return assemble_transcript([word], [passage], language or "de")


def span(start: float, end: float) -> SpeechSpan:
    return SpeechSpan(start_seconds=start, end_seconds=end)


def test_times_are_those_of_the_recording_and_the_language_of_its_start(tmp_path: Path) -> None:
    silence, sound = np.zeros(5 * CANONICAL_HZ, np.float32), sing(8.0, CANONICAL_HZ)
    write_wav(tmp_path / "take.wav", np.concatenate([silence, sound, silence, sound]), CANONICAL_HZ)
    listener, done = Listener(), list[float]()
    found = transcribe_recording(
        tmp_path / "take.wav", [span(5.0, 13.0), span(18.0, 26.0)], listener, progress=done.append
    )
    assert [word.start_seconds for word in found.words] == pytest.approx([5.0, 18.0], abs=0.05)
    assert [word.end_seconds for word in found.words] == pytest.approx([13.0, 26.0], abs=0.1)
    assert [round(passage.start_seconds, 1) for passage in found.passages] == [4.7, 17.7]
    assert listener.languages == [None, "de"]
    assert found.language == "de"
    assert max(listener.lengths) < PIECE_SECONDS
    assert done == pytest.approx([13.3, 26.3])


def test_without_speech_nobody_listens(tmp_path: Path) -> None:
    write_wav(tmp_path / "take.wav", np.zeros(CANONICAL_HZ, np.float32), CANONICAL_HZ)
    listener = Listener()
    found = transcribe_recording(tmp_path / "take.wav", [], listener)
    assert (found.text, listener.lengths) == ("", [])


@pytest.mark.needs_program("flite")
def test_speech_in_a_file_is_found_where_it_is(tmp_path: Path) -> None:
    spoken = speak(tmp_path, "This is said in the middle of a long silence.")
    samples, ((start, end),) = with_pauses([spoken], 15.0)
    write_wav(tmp_path / "take.wav", resample(samples, FLITE_HZ, CANONICAL_HZ), CANONICAL_HZ)
    spans = find_speech_in(tmp_path / "take.wav")
    assert spans[0].start_seconds == pytest.approx(start, abs=0.4)
    assert spans[-1].end_seconds == pytest.approx(end, abs=0.4)


edges = st.lists(st.floats(min_value=0.0, max_value=300.0), max_size=60, unique=True).map(sorted)


@given(edges=edges)
def test_pieces_cover_all_speech_once_and_are_as_long_as_can_be_heard(edges: list[float]) -> None:
    speech = [span(start, end) for start, end in itertools.pairwise(edges)][::2]
    pieces = cut_into_pieces(speech, PIECE_SECONDS)
    for one in speech:
        assert sum(start <= one.start_seconds and one.end_seconds <= end for start, end in pieces) == 1
    for left, right in itertools.pairwise(pieces):
        assert left[1] <= right[0]
    longest = max([PIECE_SECONDS, *(one.seconds + 0.6 for one in speech)])
    assert all(0.0 <= start < end <= start + longest + 1e-6 for start, end in pieces)


def test_a_piece_that_is_too_long_is_cut_where_it_is_quiet() -> None:
    samples = np.ones(12 * TRANSCRIBER_HZ, np.float32)
    samples[int(6.5 * TRANSCRIBER_HZ) : 7 * TRANSCRIBER_HZ] = 0.0
    pieces = list(split_at_quiet_moments(samples, 8.0))
    assert sum(map(len, pieces)) == len(samples)
    assert 6.5 <= len(pieces[0]) / TRANSCRIBER_HZ <= 7.0
    assert [len(piece) for piece in split_at_quiet_moments(samples[:100], 8.0)] == [100]
