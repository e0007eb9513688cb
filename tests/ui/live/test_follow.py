"""Following work and stopping it: steps, results, errors, and an end when the page is closed."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from backend.background_tasks import BackgroundTasks, TaskCancelled
from backend.errors import RecordingSilent
from tests.backend.serving.conftest import wait_until
from ui.live.follow import StopFlags, follow


def run(steps):
    """Everything that was shown, and the result."""
    shown = []
    while True:
        try:
            shown.append(next(steps))
        except StopIteration as end:
            return shown, end.value


def test_steps_are_shown_until_there_is_a_result():
    may_end = threading.Event()

    def work(task):
        task.report(1, 2)
        may_end.wait()
        return "done"

    def show(state):
        if state.num_done:
            may_end.set()
        return state.num_done, state.num_total

    shown, result = run(follow(BackgroundTasks(), "key", "Working", work, show))
    assert result == "done"
    assert (1, 2) in shown


def test_what_went_wrong_comes_back_as_it_was():
    def work(_):
        raise RecordingSilent("a.wav", measure="level", level_dbfs=-90, min_dbfs=-50)

    with pytest.raises(RecordingSilent, match=r"a\.wav is silent"):
        run(follow(BackgroundTasks(), "key", "Listening", work, lambda state: state))


def test_cancelling_does_not_wait_for_work_that_cannot_be_interrupted():
    background_tasks, may_end = BackgroundTasks(), threading.Event()

    def show(_):
        background_tasks.cancel("key")

    with pytest.raises(TaskCancelled):
        run(follow(background_tasks, "key", "Listening", lambda _: may_end.wait(), show))
    assert background_tasks.state("key").is_running
    may_end.set()


def test_a_page_that_is_closed_ends_its_work():
    background_tasks, ended = BackgroundTasks(), threading.Event()

    def work(task):
        wait_until(task.is_cancelled)
        ended.set()

    steps = follow(background_tasks, "key", "Working", work, lambda state: state)
    next(steps)
    steps.close()
    assert ended.wait(60)


def test_a_stop_reaches_what_the_session_has_begun():
    flags = StopFlags()
    flags.begin("a")
    flags.stop("a")
    with flags.watch("a") as is_stopped:
        assert is_stopped(), "also while it still waited for its turn"


def test_other_sessions_go_on():
    flags = StopFlags()
    with flags.watch("a") as is_stopped:
        flags.stop("b")
        assert not is_stopped()


def test_a_stop_with_nothing_under_way_does_not_stop_the_next():
    flags = StopFlags()
    flags.stop("a")
    with flags.watch("a") as is_stopped:
        assert not is_stopped()


def test_what_is_begun_after_a_stop_is_not_stopped():
    flags = StopFlags()
    flags.begin("a")
    flags.stop("a")
    flags.begin("a")
    with flags.watch("a") as is_stopped:
        assert not is_stopped()


def test_the_end_of_an_older_flag_keeps_the_newer_one():
    flags = StopFlags()
    with ExitStack() as new, flags.watch("a"):
        flags.begin("a")
        is_stopped = new.enter_context(flags.watch("a"))
        new = new.pop_all()
    flags.stop("a")
    assert is_stopped()
    new.close()
    with flags.watch("a") as is_stopped:
        assert not is_stopped(), "what has ended is forgotten"
