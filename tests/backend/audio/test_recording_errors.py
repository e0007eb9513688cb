from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import (
    AudioWriteFailed,
    DecoderFailed,
    EncoreError,
    RecordingDamaged,
    RecordingError,
    RecordingNotAudio,
    RecordingNotFound,
    RecordingSilent,
    RecordingTooLarge,
    RecordingTooLong,
    RecordingTooShort,
    RecordingUnsupported,
)


def errors_about(name: str) -> list[EncoreError]:
    return [
        RecordingNotFound(name, problem="does not exist"),
        RecordingTooLarge(name, num_bytes=300_000_000, max_bytes=256_000_000),
        RecordingNotAudio(name),
        RecordingUnsupported(name, problem="has 9 channels"),
        RecordingDamaged(name, problem="parts are missing"),
        RecordingTooShort(name, seconds=0.84, min_seconds=1.0),
        RecordingTooLong(name, max_seconds=300.0),
        RecordingTooLong(name, seconds=301.0, max_seconds=300.0),
        RecordingSilent(name, measure="peak", level_dbfs=-72.4, min_dbfs=-60.0),
        RecordingSilent(name, measure="peak", level_dbfs=float("-inf"), min_dbfs=-60.0),
        DecoderFailed(name, cause="the decoder crashed"),
        AudioWriteFailed(name, problem="the disk is full; free some space and try again"),
    ]


@given(st.text(max_size=300))
def test_a_message_is_one_line_whatever_the_name(name: str) -> None:
    for error in errors_about(name):
        message = str(error)
        assert message.isprintable()
        assert message.endswith(".")
        assert len(message) < 300


@given(st.text(max_size=20))
def test_an_error_survives_the_way_between_processes(name: str) -> None:
    for error in errors_about(name):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


@given(st.floats(0.0, 0.999))
def test_what_is_too_short_never_reads_as_long_enough(seconds: float) -> None:
    shown = re.search(r"lasts (\S+) s", str(RecordingTooShort("take.wav", seconds=seconds, min_seconds=1.0)))
    assert shown is not None
    assert float(shown[1]) < 1.0


@given(st.floats(300.001, 1e5))
def test_what_is_too_long_never_reads_as_short_enough(seconds: float) -> None:
    shown = re.search(r"it is (\S+) s", str(RecordingTooLong("take.wav", seconds=seconds, max_seconds=300.0)))
    assert shown is not None
    assert float(shown[1]) > 300.0


def test_the_message_names_the_file_and_the_way_out() -> None:
    error = RecordingTooShort("take3.wav", seconds=0.84, min_seconds=1.0)
    assert str(error) == "take3.wav lasts 0.8 s; cloning needs 1.0 s or more. Record a longer take."
    assert error.recording_name == "take3.wav"
    with pytest.raises(RecordingError):
        raise error
