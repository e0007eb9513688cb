"""Prompts of recordings are cached: the same question gives the same object, any other question another voice."""

from __future__ import annotations

import shutil

import pytest
import torch

from backend.errors import RecordingError, RecordingNotFound
from backend.voices.prompts import VoicePrompts
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_broken, write_voice
from training.model.voice_model import VoiceModel


@pytest.fixture(scope="module")
def model():
    return VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")


@pytest.fixture
def recording(tmp_path):
    return write_voice(tmp_path / "voice.wav", seconds=1.5)


def test_the_same_recording_is_analysed_once_whatever_its_name(model, recording, tmp_path):
    cache = VoicePrompts(model)
    voice = cache.clone(recording)
    copy = shutil.copy(recording, tmp_path / "other name.wav")
    assert cache.clone(copy) is voice
    assert cache.clone(recording, "  ") is voice, "an empty transcript is none"


def test_another_recording_or_transcript_is_another_voice(model, recording, tmp_path):
    cache = VoicePrompts(model)
    voice = cache.clone(recording)
    in_context = cache.clone(recording, "Hello.")
    assert not voice.is_in_context
    assert in_context.is_in_context
    write_voice(recording, seconds=2.5)
    changed = cache.clone(recording)
    assert changed.speaker is not None
    assert voice.speaker is not None
    assert not torch.equal(changed.speaker, voice.speaker)


def test_the_voices_not_used_for_longest_are_forgotten(model, recording):
    cache = VoicePrompts(model, max_prompts=2)
    first, second = (cache.clone(recording, text) for text in ("One.", "Two."))
    assert cache.clone(recording, "One.") is first
    cache.clone(recording, "Three.")
    assert cache.clone(recording, "One.") is first
    assert cache.clone(recording, "Two.") is not second


def test_what_cannot_be_read_is_an_error_about_the_recording(model, tmp_path):
    with pytest.raises(RecordingNotFound, match=r"gone\.wav"):
        VoicePrompts(model).clone(tmp_path / "gone.wav")
    with pytest.raises(RecordingError, match=r"broken\.wav"):
        VoicePrompts(model).clone(write_broken(tmp_path / "broken.wav"))
