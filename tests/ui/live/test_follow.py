"""Following work: its steps are seen, its result or its own error comes back, and it ends with whoever follows."""

from __future__ import annotations

import threading

import pytest

from backend.background_tasks import BackgroundTasks, TaskCancelled
from backend.errors import RecordingSilent
from tests.backend.serving.conftest import wait_until
from ui.live.follow import follow


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
        raise RecordingSilent("a.wav", measure="level", level_dbfs=-90, minimum_dbfs=-50)

    with pytest.raises(RecordingSilent, match=r"a\.wav is silent"):
        run(follow(BackgroundTasks(), "key", "Listening", work, lambda state: state))


def test_who_cancels_does_not_wait_for_what_cannot_be_interrupted():
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
