"""Recordings are written down beside the program: at once stopped, never in the way, and believed only where sure."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from backend.audio.resample import resample
from backend.transcription import listening
from backend.transcription.errors import TranscriptionError
from backend.transcription.listening import Heard, hear_clips, hear_recording
from backend.transcription.text_difference import text_errors
from backend.transcription.transcriber import TRANSCRIBER_HZ
from backend.voices.reference import read_reference
from backend.voices.samples import get_sample

CLIP_SECONDS = 3.0


class Cancelled(Exception):
    pass


@pytest.fixture(scope="module")
def rufus(tmp_path_factory):
    recording = read_reference(get_sample("rufus").reference_in(tmp_path_factory.mktemp("home")))
    samples = resample(recording.samples, recording.sample_rate, TRANSCRIBER_HZ)
    return samples[: round(CLIP_SECONDS * TRANSCRIBER_HZ)]


def test_a_voice_is_believed_and_what_is_no_speech_is_not(rufus):
    ticks = []
    heard, backwards = hear_clips([rufus, rufus[::-1]], "en", lambda *done: ticks.append(done))
    assert heard.is_trusted
    characters, _ = text_errors(get_sample("rufus").reference_text[: len(heard.text)], heard.text)
    assert characters < 0.25
    assert not backwards.is_trusted
    # The interpreter is free meanwhile: it was held for as long as a clip lasts when this process itself listened.
    assert len(ticks) > 5


def test_an_unknown_language_has_no_listener(rufus):
    assert hear_clips([rufus[:8000]], "xx") == [None]


def test_it_ends_at_once_and_leaves_no_process(rufus, monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        listening.subprocess, "Popen", lambda *args, **options: started.append(popen(*args, **options)) or started[-1]
    )

    def give_up(done, total):
        raise Cancelled

    with pytest.raises(Cancelled):
        hear_recording(rufus, TRANSCRIBER_HZ, give_up)
    assert started[0].poll() is not None


def test_a_listener_that_dies_is_an_error_in_words(rufus, monkeypatch):
    monkeypatch.setattr(listening, "_PROCESS", "backend.transcription.no_such_module")
    with pytest.raises(TranscriptionError, match="log"):
        hear_clips([rufus], None)


@pytest.mark.parametrize(
    ("change", "is_trusted"),
    [
        ({}, True),
        ({"confidence": 0.3}, False),
        ({"is_guess": True}, False),
        ({"text": ""}, False),
        ({"seconds": 9.0}, False),
    ],
)
def test_only_what_was_heard_for_sure_is_believed(change, is_trusted):
    assert (
        Heard(**{"text": "Hello.", "seconds": 1.0, "listener": "x", "confidence": 0.9} | change).is_trusted
        is is_trusted
    )


def test_empty_sound_has_no_words():
    assert not hear_recording(np.zeros(3 * TRANSCRIBER_HZ, np.float32), TRANSCRIBER_HZ, lambda *_: None).is_trusted
