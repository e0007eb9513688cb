"""How the speech of an epoch is divided among speakers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.balance import MAX_REPEATS, clips_of_epoch, frames_per_epoch

speakers = st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=12), min_size=1, max_size=4)


def ranges(frames: list[list[int]]) -> list[range]:
    """Which clips are whose, where one speaker's are behind another's."""
    ends = [0]
    for own in frames:
        ends.append(ends[-1] + len(own))
    return list(map(range, ends, ends[1:]))


def epochs(frames: list[list[int]], number: int, seed: int = 1) -> list[list[int]]:
    """The clips of the first epochs."""
    flat = [count for own in frames for count in own]
    return [clips_of_epoch(ranges(frames), flat, seed=seed, epoch=epoch) for epoch in range(number)]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6))
def test_an_epoch_has_as_much_speech_as_there_is_and_divides_it_equally(frames: list[int]) -> None:
    shares = frames_per_epoch(frames)
    assert sum(shares) == pytest.approx(sum(frames))
    full = [share for share, own in zip(shares, frames, strict=True) if share < MAX_REPEATS * own]
    # Who has less than the others has as much as may be repeated.
    assert all(share == pytest.approx(max(shares)) for share in full)
    assert all(share <= MAX_REPEATS * own for share, own in zip(shares, frames, strict=True))


def test_an_hour_does_not_drown_five_minutes() -> None:
    hour, five_minutes = 60 * 60 * 12.5, 5 * 60 * 12.5
    assert frames_per_epoch([hour, five_minutes]) == (45 * 60 * 12.5, 20 * 60 * 12.5)
    assert frames_per_epoch([hour, hour / 2, hour / 4]) == (hour * 7 / 12,) * 3


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(0, 9))
def test_one_speaker_has_every_clip_once(frames: list[int], seed: int) -> None:
    assert epochs([frames], 3, seed) == [list(range(len(frames)))] * 3


@given(speakers, st.integers(0, 9))
def test_every_epoch_has_the_shares(frames: list[list[int]], seed: int) -> None:
    shares = frames_per_epoch([sum(own) for own in frames])
    flat = [count for own in frames for count in own]
    for chosen in epochs(frames, 3, seed):
        for clips, share in zip(ranges(frames), shares, strict=True):
            spoken = sum(flat[clip] for clip in chosen if clip in clips)
            # A clip belongs to the epoch that it begins in.
            assert abs(spoken - share) < max(flat[clips.start : clips.stop])


@given(speakers)
def test_no_clip_is_heard_twice_more_often_than_another_of_the_same_speaker(frames: list[list[int]]) -> None:
    heard = Counter(clip for chosen in epochs(frames, 5) for clip in chosen)
    for clips in ranges(frames):
        counts = [heard[clip] for clip in clips]
        assert max(counts) - min(counts) <= 1


def test_the_seed_decides_who_is_left_out() -> None:
    frames = [[10] * 12, [10] * 3]
    assert epochs(frames, 4) == epochs(frames, 4)
    assert epochs(frames, 4) != epochs(frames, 4, seed=2)
    first, second, *_ = epochs(frames, 2)
    assert first != second
