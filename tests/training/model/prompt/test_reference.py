from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from numpy.typing import NDArray

from training.model.errors import PromptError
from training.model.prompt.reference import prepare_reference

Samples = NDArray[np.float32]

RATE = 16_000
SILENCE = RATE // 2
RATES = st.sampled_from([8_000, 11_025, 16_000, 24_000, 44_100])
# 50 dB below speech, the floor of a good recording: a pause, but no digital silence.
NOISE = 1e-3


def seconds(least: float, most: float) -> st.SearchStrategy[float]:
    return st.floats(least, most)


def speak(duration: float, rate: int = RATE) -> Samples:
    time = np.arange(round(duration * rate)) / rate
    return (0.3 * np.sin(2 * np.pi * 150 * time) + 0.1 * np.sin(2 * np.pi * 1_300 * time + 1.0)).astype(np.float32)


def pause(duration: float, rate: int = RATE) -> Samples:
    generator = np.random.default_rng(round(duration * 1e6))
    return (NOISE * generator.uniform(-1, 1, round(duration * rate))).astype(np.float32)


def sound_of(prepared: Samples, rate: int = RATE) -> Samples:
    """What stands before the half second of silence."""
    num_zeros = round(rate / 2)
    assert (prepared[-num_zeros:] == 0).all()
    return prepared[:-num_zeros]


@given(
    st_numpy.arrays(
        np.float32,
        st.integers(1, 4 * RATE),
        elements=st.floats(-1, 1, width=32, allow_subnormal=False),
        fill=st.just(0),
    ),
    RATES,
)
def test_any_recording_ends_in_exactly_half_a_second_of_silence(samples: Samples, rate: int) -> None:
    sound = sound_of(prepare_reference(samples, rate), rate)
    assert sound.dtype == np.float32
    assert len(sound) <= len(samples)
    assert len(sound) == len(np.trim_zeros(sound, "b"))


@given(
    st_numpy.arrays(
        np.float32,
        st.integers(1, 2 * RATE),
        elements=st.floats(-1, 1, width=32, allow_subnormal=False),
        fill=st.just(0),
    )
)
def test_preparing_again_changes_nothing(samples: Samples) -> None:
    once = prepare_reference(samples, RATE)
    np.testing.assert_array_equal(prepare_reference(once, RATE), once)


@given(seconds(0.0, 0.6), st.lists(st.tuples(seconds(0.05, 1.0), seconds(0.02, 0.7)), min_size=1, max_size=5))
def test_speech_among_pauses_is_prepared_once_and_for_all(lead: float, words: list[tuple[float, float]]) -> None:
    recording = np.concatenate([pause(lead), *(part for word, gap in words for part in (speak(word), pause(gap)))])
    once = prepare_reference(recording, RATE)
    np.testing.assert_array_equal(prepare_reference(once, RATE), once)


@given(seconds(1.0, 3.0), seconds(0.0, 3.0), seconds(0.0, 3.0), RATES)
def test_silence_around_speech_is_trimmed_and_no_speech_is(
    spoken: float, before: float, after: float, rate: int
) -> None:
    speech = speak(spoken, rate)
    recording = np.concatenate([pause(before, rate), speech, pause(after, rate)])
    sound = sound_of(prepare_reference(recording, rate), rate)
    begin = np.flatnonzero(np.abs(sound) > NOISE)[0]
    # The 0.1 s, and the frame of 10 ms in which the speech begins.
    assert begin <= 0.111 * rate
    fade = round(0.01 * rate)
    kept = sound[begin : begin + len(speech) - fade]
    offset = np.flatnonzero(np.abs(speech) > NOISE)[0]
    np.testing.assert_array_equal(kept[: len(speech) - fade - offset], speech[offset : len(speech) - fade])
    assert len(sound) <= len(speech) + 0.27 * rate


# A little more than the second that has to stay: its first and last 10 ms may count as silence.
@given(seconds(1.03, 3.0), seconds(0.2, 1.0), seconds(0.02, 0.14), RATES)
def test_a_cut_off_syllable_after_a_pause_goes(spoken: float, gap: float, syllable: float, rate: int) -> None:
    complete = np.concatenate([speak(spoken, rate), pause(gap, rate)])
    with_syllable = np.concatenate([complete, speak(syllable, rate)])
    prepared = prepare_reference(with_syllable, rate)
    assert len(sound_of(prepared, rate)) <= len(complete)
    np.testing.assert_array_equal(prepared, prepare_reference(complete, rate))


@given(seconds(0.1, 0.98), seconds(0.2, 0.5), seconds(0.02, 0.14))
def test_of_little_speech_nothing_goes(spoken: float, gap: float, syllable: float) -> None:
    recording = np.concatenate([speak(spoken), pause(gap), speak(syllable)])
    assert len(sound_of(prepare_reference(recording, RATE))) == len(recording)


@given(seconds(1.0, 2.0), seconds(0.2, 1.0), seconds(0.18, 1.0))
def test_a_word_that_runs_to_the_end_stays(spoken: float, gap: float, word: float) -> None:
    recording = np.concatenate([speak(spoken), pause(gap), speak(word)])
    assert len(sound_of(prepare_reference(recording, RATE))) == len(recording)


@given(seconds(1.0, 2.0), seconds(0.2, 1.0), seconds(0.03, 0.15), seconds(0.05, 0.4))
def test_a_short_word_that_is_followed_by_silence_stays(spoken: float, gap: float, word: float, after: float) -> None:
    complete = np.concatenate([speak(spoken), pause(gap), speak(word)])
    sound = sound_of(prepare_reference(np.concatenate([complete, pause(after)]), RATE))
    assert len(sound) >= len(complete)


@given(seconds(1.0, 2.0), seconds(0.02, 0.15))
def test_speech_without_a_pause_stays_whole(spoken: float, closure: float) -> None:
    recording = np.concatenate([speak(spoken), pause(closure), speak(0.1)])
    assert len(sound_of(prepare_reference(recording, RATE))) == len(recording)


@given(
    st.lists(st.tuples(seconds(0.05, 0.8), seconds(0.0, 0.5)), min_size=1, max_size=6), seconds(0.0, 0.3), st.booleans()
)
def test_a_second_of_speech_leaves_a_second_of_sound(
    words: list[tuple[float, float]], last_word: float, digital_pauses: bool
) -> None:
    silence = 0.0 if digital_pauses else 1.0
    parts = [part for word, gap in words for part in (speak(word), silence * pause(gap))]
    recording = np.concatenate([*parts, speak(last_word)]).astype(np.float32)
    assume(sum(word for word, _ in words) + last_word >= 1.0)
    # Half a millisecond: a sine that ends in its zero crossing ends in a sample of zero.
    assert len(sound_of(prepare_reference(recording, RATE))) >= 0.9995 * RATE


@pytest.mark.parametrize("after", [0.0, 0.1, 2.0])
def test_the_cut_makes_no_click(after: float) -> None:
    recording = np.concatenate([speak(1.5), pause(after)])
    sound = sound_of(prepare_reference(recording, RATE))
    last_10_ms = np.abs(sound[-RATE // 100 :])
    assert last_10_ms[-1] <= 0.4 / (RATE // 100)
    assert (last_10_ms <= np.linspace(0.4, 0.0025, RATE // 100) + 1e-6).all()


def test_a_background_as_loud_as_soft_speech_leaves_all_as_it_is() -> None:
    generator = np.random.default_rng(0)
    recording = np.concatenate([np.zeros(RATE), speak(1.5), np.zeros(RATE), speak(0.1)])
    recording += 0.02 * generator.standard_normal(len(recording))
    assert len(sound_of(prepare_reference(recording, RATE))) == len(recording)


def test_the_input_is_left_alone() -> None:
    recording = speak(1.5)
    before = recording.copy()
    prepare_reference(recording, RATE)
    np.testing.assert_array_equal(recording, before)


def test_silence_is_answered_with_silence_and_nothing_with_words() -> None:
    np.testing.assert_array_equal(prepare_reference(np.zeros(3 * RATE), RATE), np.zeros(SILENCE))
    with pytest.raises(PromptError, match="empty"):
        prepare_reference(np.zeros(0), RATE)
