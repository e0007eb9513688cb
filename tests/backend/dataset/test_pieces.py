"""Which stretches of a recording are transcribed: all of its speech, in pieces that never divide a span of it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.audio.canonical import CANONICAL_HZ, read_blocks
from backend.audio.resample import resample, resample_blocks
from backend.audio.span import Span
from backend.audio.voice_activity import VOICE_ACTIVITY_HZ, find_speech
from backend.audio.writing import write_wav
from backend.dataset.stages.transcribe import cut_into_pieces
from tests.backend.audio.speech import FLITE_HZ, speak, with_pauses

PIECE_SECONDS = 10.0


def span(start: float, end: float) -> Span:
    return Span(start_seconds=start, end_seconds=end)


@pytest.mark.needs_program("flite")
def test_speech_in_a_file_is_found_where_it_is(tmp_path: Path) -> None:
    spoken = speak(tmp_path, "This is said in the middle of a long silence.")
    samples, ((start, end),) = with_pauses([spoken], 15.0)
    write_wav(tmp_path / "take.wav", resample(samples, FLITE_HZ, CANONICAL_HZ), CANONICAL_HZ)
    spans = find_speech(resample_blocks(read_blocks(tmp_path / "take.wav"), CANONICAL_HZ, VOICE_ACTIVITY_HZ))
    assert spans[0].start_seconds == pytest.approx(start, abs=0.4)
    assert spans[-1].end_seconds == pytest.approx(end, abs=0.4)


edges = st.lists(st.floats(min_value=0.0, max_value=300.0), max_size=60, unique=True).map(sorted)


@given(edges=edges)
def test_pieces_cover_all_speech_once_and_are_as_long_as_can_be_heard(edges: list[float]) -> None:
    speech = [span(start, end) for start, end in itertools.pairwise(edges)][::2]
    pieces = cut_into_pieces(speech, PIECE_SECONDS)
    for one in speech:
        assert (
            sum(piece.start_seconds <= one.start_seconds and one.end_seconds <= piece.end_seconds for piece in pieces)
            == 1
        )
    for left, right in itertools.pairwise(pieces):
        assert left.end_seconds <= right.start_seconds
    longest = max([PIECE_SECONDS, *(one.seconds + 0.6 for one in speech)])
    assert all(piece.start_seconds >= 0.0 and 0.0 < piece.seconds <= longest + 1e-6 for piece in pieces)
