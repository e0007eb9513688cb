"""Work in the background: told how far it is, stopped, and never left without an end."""

from __future__ import annotations

import threading

import pytest

from backend.background_tasks import BackgroundTask, BackgroundTasks, TaskBusy
from backend.errors import EncoreError

PATIENCE_SECONDS = 60.0


def run(work, key="one"):
    background_tasks = BackgroundTasks()
    background_tasks.start(key, "Counting", work)
    background_tasks.wait(key, PATIENCE_SECONDS)
    return background_tasks.state(key)


def test_a_result_is_kept():
    state = run(lambda task: task.report(3, 3) or "done")
    assert (state.is_running, state.result, state.problem) == (False, "done", "")
    assert (state.num_done, state.num_total) == (3, 3)


def test_what_a_person_can_put_right_is_told_as_it_is():
    def work(task: BackgroundTask[str]) -> str:
        raise EncoreError("The disk is full. Free some space.")

    assert run(work).problem == "The disk is full. Free some space."


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_ends_it_too():
    state = run(lambda task: 1 // 0)
    assert not state.is_running
    assert "fault in Encore" in state.problem


def test_one_that_is_cancelled_stops_at_its_next_report():
    background_tasks, begun, go_on = BackgroundTasks(), threading.Event(), threading.Event()

    def work(task: BackgroundTask[str]) -> str:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        task.report(1, 2)
        return "must not be reached"

    background_tasks.start("one", "Counting", work)
    assert begun.wait(PATIENCE_SECONDS)
    with pytest.raises(TaskBusy, match="Counting"):
        background_tasks.start("one", "Counting", work)
    background_tasks.cancel("one")
    go_on.set()
    background_tasks.wait("one", PATIENCE_SECONDS)
    assert background_tasks.state("one").result is None
    assert background_tasks.state("one").problem == "Stopped."


def test_a_newer_task_may_replace_a_running_one():
    background_tasks, go_on = BackgroundTasks(), threading.Event()
    background_tasks.start("one", "Old", lambda task: go_on.wait(PATIENCE_SECONDS) and "old")
    background_tasks.start("one", "New", lambda task: "new", replaces=True)
    background_tasks.wait("one", PATIENCE_SECONDS)
    go_on.set()
    assert background_tasks.state("one").result == "new"


def test_a_result_that_was_taken_is_forgotten():
    background_tasks = BackgroundTasks()
    background_tasks.start("one", "Counting", lambda task: 1)
    background_tasks.wait("one", PATIENCE_SECONDS)
    background_tasks.forget("one")
    assert background_tasks.state("one") is None
