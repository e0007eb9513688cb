from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from backend.serving.engine.running_take import NEVER, RunningTake
from backend.serving.engine.take_stream import PlaybackClock, TakeStream
from backend.serving.errors import EngineBusy
from training.model.generation.finish_reason import FinishReason

FRAME = torch.zeros(16, dtype=torch.long)


def running(*, is_live=True, begun_at=0, fades=False):
    return RunningTake(slot=0, stream=TakeStream(1, 1000, is_live=is_live), begun_at=begun_at, fades=fades)


def chunk_sizes(take, num_frames, at_once=1):
    """Sizes of chunks when the engine looks after so many frames each time."""
    sizes = []
    for number in range(1, num_frames + 1):
        take.waiting.append(FRAME)
        while number % at_once == 0 and take.is_due:
            sizes.append(len(take.take_codes(take.next_frames())))
    take.reason = FinishReason.EOS
    while take.is_due:
        sizes.append(len(take.take_codes(take.next_frames())))
    return sizes


def test_chunks_grow_for_a_listener_and_come_in_few_calls_otherwise():
    assert chunk_sizes(running(), 30)[:4] == [1, 2, 4, 8]
    assert chunk_sizes(running(is_live=False, begun_at=16), 30) == [1, 15, 14]


@pytest.mark.parametrize("at_once", [3, 7, 40])
def test_chunks_are_the_same_however_late_they_are_made(at_once):
    assert chunk_sizes(running(begun_at=5), 80, at_once) == chunk_sizes(running(begun_at=5), 80)


@pytest.mark.parametrize("num_frames", [1, 2, 3, 4, 30])
def test_a_last_frame_that_is_silenced_is_kept_until_its_take_ends(num_frames):
    take = running(fades=True)
    for number in range(1, num_frames + 1):
        take.waiting.append(FRAME)
        while take.is_due:
            take.take_codes(take.next_frames())
            assert not take.is_to_fade
        assert take.num_decoded < number
    take.reason = FinishReason.EOS
    fading = []
    while take.is_due:
        take.take_codes(take.next_frames())
        fading.append(take.is_to_fade)
    assert fading == [False] * (len(fading) - 1) + [True]
    assert take.num_decoded == num_frames
    # Also where the last chunks are put back for lack of time.
    take.put_back(torch.stack([FRAME]))
    assert not take.is_to_fade


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CANCELLED])
def test_a_take_that_does_not_end_by_itself_is_heard_to_its_end(reason):
    take = running(fades=True)
    take.waiting = [FRAME, FRAME]
    take.reason = reason
    take.take_codes(2)
    assert not take.is_to_fade


@pytest.mark.parametrize("first_step", range(12))
def test_long_chunks_end_together_whenever_their_takes_began(first_step):
    take = running(begun_at=first_step)
    ends, step = [], first_step
    for _ in range(80):
        step += 1
        take.waiting.append(FRAME)
        if take.is_due:
            take.take_codes(take.next_frames())
            if take.num_chunks > 5:
                ends.append(step % 12)
    assert ends
    assert set(ends) == {0}


def test_a_take_with_a_listener_goes_first():
    assert running().needed_at < running(is_live=False).needed_at == NEVER


def test_the_clock_finds_every_pause():
    clock = PlaybackClock()
    assert not clock.add(0.1, 10.0)
    assert not clock.add(0.2, 10.05)
    assert clock.runs_dry_at == pytest.approx(10.3)
    assert clock.add(0.5, 10.4)
    assert clock.runs_dry_at == pytest.approx(10.9)
    assert not clock.add(0.5, 10.6)
    assert (clock.num_underruns, clock.max_pause_seconds) == (1, pytest.approx(0.1))


def test_chunks_arrive_before_the_error_behind_them():
    stream = TakeStream(1, 1000, is_live=True)
    stream.put(np.ones(3, dtype=np.float32))
    stream.finish(FinishReason.CANCELLED, EngineBusy("No.", retry_after_seconds=2))
    assert len(next(stream)) == 3
    with pytest.raises(EngineBusy):
        next(stream)


def test_a_listener_whose_question_fails_ends_only_his_take():
    def ask():
        raise ValueError("a mistake")

    assert not TakeStream(1, 1000, is_live=True, cancelled=ask).is_wanted


def test_being_too_busy_survives_the_way_between_processes():
    error = pickle.loads(pickle.dumps(EngineBusy("All slots are taken.", retry_after_seconds=3.4)))
    assert (str(error), error.retry_after_seconds) == ("All slots are taken. Try again in 3 s.", 3.4)
