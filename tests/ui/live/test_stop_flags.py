"""Stop flags: a stop reaches what its own session has begun, and nothing else."""

from __future__ import annotations

from ui.live.stop_flags import StopFlags


def test_a_stop_reaches_what_the_session_has_begun():
    flags = StopFlags()
    flags.begin("a")
    flag = flags.current("a")
    flags.stop("a")
    assert flag.is_set()
    assert flags.current("a").is_set(), "also while it still waits for its turn"


def test_other_sessions_go_on():
    flags = StopFlags()
    flag = flags.current("a")
    flags.stop("b")
    assert not flag.is_set()


def test_a_stop_with_nothing_under_way_does_not_stop_the_next():
    flags = StopFlags()
    flags.stop("a")
    assert not flags.current("a").is_set()


def test_what_is_begun_after_a_stop_is_not_stopped():
    flags = StopFlags()
    flags.begin("a")
    flags.stop("a")
    flags.begin("a")
    assert not flags.current("a").is_set()


def test_ending_the_old_one_keeps_the_new_one():
    flags = StopFlags()
    old = flags.current("a")
    flags.begin("a")
    new = flags.current("a")
    flags.end("a", old)
    flags.stop("a")
    assert new.is_set()
    flags.end("a", new)
    assert flags.current("a") is not new
