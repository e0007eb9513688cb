"""The lead of a listener: long enough that nothing comes late, and no longer."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.serving.engine.frame_pace import MAX_LEAD_SECONDS, FramePace, PaceMeter, lead_seconds
from backend.serving.engine.running_take import LIVE_CHUNK_FRAMES

FRAME = 0.08
HELD = 0.05

frame_seconds = st.floats(0.001, 0.5)
late_seconds = st.floats(0, 0.5)
sounds = st.floats(0.1, 120)
played = st.integers(0, 8)


def lead(frame: float, late: float, remaining: float, num_chunks: int = 0) -> float:
    pace = FramePace(frame_seconds=frame, late_seconds=late)
    return lead_seconds(pace, remaining, sound_per_frame=FRAME, held_seconds=HELD, num_chunks=num_chunks)


@given(frame_seconds, late_seconds, sounds, played)
def test_it_is_bounded(frame: float, late: float, remaining: float, num_chunks: int) -> None:
    assert 0 <= lead(frame, late, remaining, num_chunks) <= min(remaining, MAX_LEAD_SECONDS)


@given(frame_seconds, late_seconds, sounds, st.floats(1, 3), st.floats(0, 0.3), st.floats(0, 60), played)
def test_what_is_slower_less_even_or_longer_needs_no_less(
    frame: float, late: float, remaining: float, slower: float, later: float, longer: float, num_chunks: int
) -> None:
    before = lead(frame, late, remaining, num_chunks)
    assert lead(frame * slower, late, remaining, num_chunks) >= before
    assert lead(frame, late + later, remaining, num_chunks) >= before
    assert lead(frame, late, remaining + longer, num_chunks) >= before


@given(sounds, played)
def test_a_fast_engine_needs_none(remaining: float, num_chunks: int) -> None:
    assert lead(0.01, 0.0, remaining, num_chunks) == 0


def test_an_engine_slower_than_speech_needs_what_it_falls_behind() -> None:
    # At half the pace, half of the sound must be there; in whole chunks.
    assert 10 <= lead(2 * FRAME, 0.0, 20.0) <= 10 + (LIVE_CHUNK_FRAMES[-1] + 2) * FRAME


@given(st.floats(0.001, 0.15), st.floats(0, 0.3), st.integers(1, 200))
def test_who_waits_for_it_never_waits_again(frame: float, late: float, num_frames: int) -> None:
    """Chunks as the engine makes them: the one to begin with in time, every later one as late as was said."""
    needed = lead(frame, late, num_frames * FRAME)
    if needed == MAX_LEAD_SECONDS:
        return
    arrivals, num_made = [], 0
    while num_made < num_frames:
        size = LIVE_CHUNK_FRAMES[min(len(arrivals), len(LIVE_CHUNK_FRAMES) - 1)]
        num_made = min(num_made + size, num_frames)
        sound = num_made * FRAME - (HELD if num_made < num_frames else 0)
        arrivals.append((num_made * frame, sound))
    began_at = next((at for at, sound in arrivals if sound >= needed - 1e-9), arrivals[-1][0])
    for (_, sound_before), (at, _) in itertools.pairwise(arrivals):
        if at > began_at:
            assert at + late - began_at <= sound_before + 1e-6


def test_nothing_is_said_before_anything_was_measured() -> None:
    meter = PaceMeter()
    meter.add_chunk(2, 0.1)
    assert meter.now() is None


def test_pace_is_that_of_the_present_number_of_takes() -> None:
    meter = PaceMeter()
    for _ in range(100):
        meter.add_frame(8, 0.04)
        meter.add_frame(1, 0.01)
    pace = meter.now()
    assert pace is not None
    assert pace.frame_seconds == pytest.approx(0.01)
    meter.add_frame(7, 0.03)
    meter.add_frame(7, 0.05)
    pace = meter.now()
    assert pace is not None
    assert pace.frame_seconds == pytest.approx(0.04)


def test_uneven_chunks_ask_for_more_and_are_forgotten() -> None:
    meter = PaceMeter()
    for _ in range(100):
        meter.add_frame(1, 0.01)
        meter.add_chunk(2, 0.02)
    even = meter.now()
    assert even is not None
    assert even.late_seconds == pytest.approx(0, abs=1e-6)
    for number in range(100):
        meter.add_chunk(2, 0.02 + 0.1 * (number % 2))
    uneven = meter.now()
    assert uneven is not None
    assert uneven.late_seconds > 0.15
    for _ in range(500):
        meter.add_chunk(2, 0.02)
    quiet = meter.now()
    assert quiet is not None
    assert quiet.late_seconds < 0.01
