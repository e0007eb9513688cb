from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from backend.errors import PromptError
from backend.serving.speech.audio_stream import AudioStream
from backend.serving.speech.crossfade import CROSSFADE_SECONDS
from backend.serving.speech.text_check import MAX_TEXT_LENGTH
from tests.backend.serving.conftest import take_of, wait_until
from training.model.generation.finish_reason import FinishReason
from training.model.generation.take_request import TakeRequest, VoicePrompt


@pytest.fixture
def request_of(engine):
    speaker = torch.ones(engine.model.config.talker.hidden_size) * 0.05
    return TakeRequest(text="One.", voice=VoicePrompt(speaker=speaker), seed=1, max_frames=4)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_long_text_is_its_pieces_in_order(engine, request_of, streaming):
    text = " ".join(
        f"This is sentence number {n}, and it is of some length." for n in "one two three four five six".split()
    )
    speech = AudioStream.of_engine(engine, replace(request_of, text=text), streaming=streaming)
    audio = np.concatenate(list(speech))
    assert len(speech.segments) > 1
    assert " ".join(speech.segments) == text
    assert len(speech.finish_reasons) == len(speech.segments)
    frame = engine.model.speech_tokenizer.config.decode_upsample_rate
    takes = [take_of(engine.submit(replace(request_of, text=piece))).waveform for piece in speech.segments]
    overlaps = round(CROSSFADE_SECONDS * speech.sample_rate) * (len(takes) - 1)
    assert len(audio) == sum(len(take) for take in takes) - overlaps == speech.num_samples
    assert len(audio) <= len(speech.segments) * 4 * frame
    # Equal but for the fades where the pieces meet.
    edge = round(CROSSFADE_SECONDS * speech.sample_rate)
    assert np.abs(audio[edge : len(takes[0]) - edge] - takes[0][edge:-edge]).max() < 1e-4


def test_progress_ends_at_the_end(engine, request_of):
    speech = AudioStream.of_engine(engine, request_of, streaming=True)
    assert speech.progress().share_done == 0
    list(speech)
    progress = speech.progress()
    assert (progress.share_done, progress.segments_done, progress.seconds_left) == (1, 1, 0)
    assert 0 < speech.seconds_to_first_audio <= speech.wall_seconds
    assert speech.finish_reason in (FinishReason.EOS, FinishReason.LENGTH)


def test_cancelling_ends_the_whole_text(engine, request_of):
    text = "First sentence here, quite long enough. " * 12
    heard = []
    speech = AudioStream.of_engine(
        engine, replace(request_of, text=text), streaming=True, cancelled=lambda: bool(heard)
    )
    for chunk in speech:
        heard.append(chunk)
    assert speech.finish_reason is FinishReason.CANCELLED
    assert len(speech.finish_reasons) < len(speech.segments)
    assert speech.num_samples < 3 * engine.sample_rate
    wait_until(lambda: engine.statistics().num_active + engine.statistics().num_waiting == 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": "\n \t"}, "no text"),
        ({"text": "a" * (MAX_TEXT_LENGTH + 1)}, "Split it"),
        ({"language": "klingon"}, "klingon"),
    ],
)
def test_what_cannot_be_spoken_is_refused_at_once(engine, request_of, change, words):
    with pytest.raises(PromptError, match=words):
        AudioStream.of_engine(engine, replace(request_of, **change), streaming=False)
