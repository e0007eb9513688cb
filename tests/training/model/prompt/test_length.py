from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import GOLDEN_CHECKPOINT
from training.model.checkpoint.reading import read_speech_tokenizer_config
from training.model.prompt.length import FIXED_FRAMES, FRAMES_PER_SECOND, frame_cap


def test_the_rate_is_that_of_the_checkpoints():
    assert read_speech_tokenizer_config(GOLDEN_CHECKPOINT).frame_rate_hz == FRAMES_PER_SECOND


@given(text=st.text(max_size=200), more=st.text(max_size=50))
def test_more_text_never_gets_a_smaller_cap(text, more):
    assert FIXED_FRAMES <= frame_cap(text) <= frame_cap(text + more) <= 2048


@pytest.mark.parametrize(
    ("text", "language", "spoken_seconds"),
    [
        # Slow but ordinary readings; a cap must leave them at least half as much again.
        ("The quick brown fox jumps over the lazy dog.", "english", 4.5),
        ("1,777,777", "english", 6.0),
        ("今天天气很好，我们去公园散步吧。", "chinese", 5.0),
        ("東京の天気は晴れです。", "japanese", 3.5),
        ("안녕하세요, 만나서 반갑습니다.", "korean", 4.0),
        ("Donaudampfschifffahrtsgesellschaft", "german", 4.0),
        ("No.", "english", 0.8),
    ],
)
def test_slow_speakers_are_not_cut_off(text, language, spoken_seconds):
    assert frame_cap(text, language) >= 1.5 * spoken_seconds * FRAMES_PER_SECOND


def test_a_runaway_ends_within_a_few_times_the_speech():
    assert frame_cap("The quick brown fox jumps over the lazy dog.") < 15 * FRAMES_PER_SECOND


def test_the_checkpoints_own_limit_holds():
    assert frame_cap("word " * 1000, longest=300) == 300
