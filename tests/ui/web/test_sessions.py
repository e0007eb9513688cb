"""Visits that are over are forgotten, those that may go on are not."""

from __future__ import annotations

from datetime import datetime, timedelta

import gradio as gr
import pytest

from tests.ui.served_page import serve_page
from ui.web.sessions import FORGOTTEN_AFTER, LEFT_AFTER, MAX_LEFT, Sessions

SHORT, SOME, LONG = timedelta(seconds=20), LEFT_AFTER * 2, FORGOTTEN_AFTER * 2


@pytest.fixture
def deleted() -> list[str]:
    return []


@pytest.fixture
def sessions(deleted: list[str]) -> Sessions:
    with gr.Blocks() as page:
        gr.State("", delete_callback=deleted.append)
    holder = Sessions()
    holder.set_blocks(page)
    return holder


def visit(sessions: Sessions, name: str, unused: timedelta, *, is_closed: bool, set_before: timedelta = SHORT) -> None:
    session = sessions[name]
    state = next(number for number, block in session.blocks_config.blocks.items() if isinstance(block, gr.State))
    session[state] = name
    time_to_live, _ = session._state_ttl[state]
    session._state_ttl[state] = time_to_live, datetime.now() - set_before
    session.is_closed = is_closed
    sessions.time_last_used[name] = datetime.now() - unused


def test_visits_that_are_over_are_forgotten_beyond_the_last_few(sessions: Sessions, deleted: list[str]) -> None:
    """Each held half a megabyte, for as long as the studio ran."""
    for number in range(MAX_LEFT + 10):
        visit(sessions, f"closed {number}", SOME, is_closed=True)
        visit(sessions, f"open {number}", SOME, is_closed=False)
        visit(sessions, f"just closed {number}", SHORT, is_closed=True)
    sessions.delete_all_expired_state()
    gone = [f"closed {number}" for number in range(10)]
    assert sorted(deleted) == gone
    assert len(sessions.session_data) == 3 * (MAX_LEFT + 10) - 10
    assert not set(gone) & {*sessions.session_data, *sessions.time_last_used}


def test_a_visit_that_nobody_has_heard_of_for_an_hour_is_forgotten(sessions: Sessions, deleted: list[str]) -> None:
    visit(sessions, "open", LONG, is_closed=False)
    visit(sessions, "closed", LONG, is_closed=True)
    visit(sessions, "working", SHORT, is_closed=False)
    sessions.delete_all_expired_state()
    assert list(sessions.session_data) == ["working"]
    assert sorted(deleted) == ["closed", "open"]
    # Who comes back after all begins anew.
    assert "open" not in sessions
    assert not sessions["open"].is_closed


def test_what_was_set_long_ago_outlasts_a_reload(sessions: Sessions, deleted: list[str]) -> None:
    """A comparison that had been voted on for more than an hour was gone as soon as its page was loaded anew."""
    visit(sessions, "loaded anew", SHORT, is_closed=True, set_before=LONG)
    sessions.delete_all_expired_state()
    assert deleted == []


def test_the_studio_holds_its_visits_so(tmp_path) -> None:
    with serve_page(tmp_path) as page:
        assert isinstance(page.blocks.state_holder, Sessions)
