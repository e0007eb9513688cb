"""What a run may become: every ending can be resumed but done, and nothing skips the queue."""

from __future__ import annotations

import pytest

from backend.runs.errors import RunStateInvalid
from backend.runs.storage.states import TRANSITIONS, RunState, check_transition


def test_every_state_has_its_successors() -> None:
    assert TRANSITIONS.keys() == set(RunState)


def test_active_runs_can_always_fail_be_cancelled_or_be_interrupted() -> None:
    for state in RunState:
        if state.is_active:
            assert {RunState.FAILED, RunState.CANCELLED, RunState.INTERRUPTED, RunState.PAUSED} <= TRANSITIONS[state]


def test_what_can_resume_goes_back_to_the_queue() -> None:
    for state in RunState:
        assert state.can_resume == (RunState.QUEUED in TRANSITIONS[state])


def test_a_done_run_cannot_change_state() -> None:
    for state in RunState:
        with pytest.raises(RunStateInvalid, match="is done"):
            check_transition("r", RunState.DONE, state)
