"""Work in the background: told how far it is, stopped, and never left without an end."""

from __future__ import annotations

import threading

import pytest

from backend.background_tasks import Errand, ErrandRefused, Errands
from backend.errors import EncoreError

PATIENCE_SECONDS = 60.0


def run(work, key="one"):
    errands = Errands()
    errands.start(key, "Counting", work)
    errands.wait(key, PATIENCE_SECONDS)
    return errands.state(key)


def test_a_result_is_kept():
    state = run(lambda errand: errand.report(3, 3) or "done")
    assert (state.is_running, state.result, state.problem) == (False, "done", "")
    assert (state.num_done, state.num_total) == (3, 3)


def test_what_a_person_can_put_right_is_told_as_it_is():
    def work(errand: Errand) -> object:
        raise EncoreError("The disk is full. Free some space.")

    assert run(work).problem == "The disk is full. Free some space."


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_ends_it_too():
    state = run(lambda errand: 1 // 0)
    assert not state.is_running
    assert "fault in Encore" in state.problem


def test_one_that_is_cancelled_stops_at_its_next_report():
    errands, begun, go_on = Errands(), threading.Event(), threading.Event()

    def work(errand: Errand) -> object:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        errand.report(1, 2)
        return "must not be reached"

    errands.start("one", "Counting", work)
    assert begun.wait(PATIENCE_SECONDS)
    with pytest.raises(ErrandRefused, match="Counting"):
        errands.start("one", "Counting", work)
    errands.cancel("one")
    go_on.set()
    errands.wait("one", PATIENCE_SECONDS)
    assert errands.state("one").result is None
    assert errands.state("one").problem == "Stopped."


def test_a_newer_one_may_replace_one_under_way():
    errands, go_on = Errands(), threading.Event()
    errands.start("one", "Old", lambda errand: go_on.wait(PATIENCE_SECONDS) and "old")
    errands.start("one", "New", lambda errand: "new", replaces=True)
    errands.wait("one", PATIENCE_SECONDS)
    go_on.set()
    assert errands.state("one").result == "new"


def test_a_result_that_was_taken_is_forgotten():
    errands = Errands()
    errands.start("one", "Counting", lambda errand: 1)
    errands.wait("one", PATIENCE_SECONDS)
    errands.forget("one")
    assert errands.state("one") is None
