"""Loading in the background: one at a time, watched from outside, ending in a state that says how."""

from __future__ import annotations

import threading

import pytest

from backend.errors import EncoreError, ModelError
from backend.serving.pool.loading import LoadingState, ModelLoading
from training.model.errors import DownloadCancelled
from training.model.hub.hub import DownloadProgress


def progress(done):
    return DownloadProgress(bytes_done=done, bytes_total=100, file="model.safetensors")


class Work:
    """A loading that reports and waits as the test says."""

    def __init__(self, error=None):
        self.error = error
        self.reported, self.may_end = threading.Event(), threading.Event()

    def __call__(self, follow, is_cancelled):
        follow(progress(40))
        follow(progress(50))
        self.reported.set()
        self.may_end.wait()
        if is_cancelled():
            raise DownloadCancelled("stopped")
        if self.error:
            raise self.error


def test_it_is_watched_from_outside():
    loading, work = ModelLoading(), Work()
    loading.start("model", work)
    work.reported.wait()
    state = loading.state
    assert state is not None
    assert (state.name, state.is_running, state.progress, state.bytes_at_start) == ("model", True, progress(50), 40)
    work.may_end.set()
    loading.wait()
    assert loading.state == LoadingState(name="model", is_running=False)


def test_a_second_one_is_refused_until_the_first_has_ended():
    loading, work = ModelLoading(), Work()
    loading.start("first", work)
    with pytest.raises(ModelError, match="first is being loaded"):
        loading.start("second", Work())
    work.may_end.set()
    loading.wait()
    second = Work()
    second.may_end.set()
    loading.start("second", second)
    loading.wait()
    assert loading.state == LoadingState(name="second", is_running=False)


def test_cancelling_ends_it_and_the_next_one_is_not_cancelled():
    loading, work = ModelLoading(), Work()
    loading.start("model", work)
    work.reported.wait()
    loading.cancel()
    work.may_end.set()
    loading.wait()
    assert loading.state == LoadingState(name="model", is_running=False, problem="stopped")
    again = Work(EncoreError("not cancelled"))
    again.may_end.set()
    loading.start("model", again)
    loading.wait()
    assert loading.state is not None
    assert loading.state.problem == "not cancelled"


def test_a_fault_of_ours_ends_in_a_state_too_and_is_logged(caplog):
    loading, work = ModelLoading(), Work(ZeroDivisionError("oops"))
    work.may_end.set()
    loading.start("model", work)
    loading.wait()
    assert loading.state is not None
    assert not loading.state.is_running
    assert "fault in Encore" in loading.state.problem
    assert "oops" in caplog.text


@pytest.mark.parametrize(
    ("done", "at_start", "seconds", "left"),
    [(50, 0, 10.0, 10.0), (50, 25, 10.0, 20.0), (100, 0, 10.0, 0.0), (50, 50, 10.0, None), (50, 0, 0.0, None)],
)
def test_the_time_left_follows_from_the_pace(done, at_start, seconds, left):
    state = LoadingState(name="m", progress=progress(done), bytes_at_start=at_start, download_seconds=seconds)
    assert state.seconds_left == left


def test_without_a_download_there_is_no_time_left():
    assert LoadingState(name="m").seconds_left is None
