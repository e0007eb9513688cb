"""What is running is shown on every tab."""

from __future__ import annotations

from ui.bar.activity import MAX_SHOWN, Running, activity_html

TUNING = Running(place="tune", what="Tuning <Ann>", percent=62, left="40 s")


def test_a_run_is_a_link_with_share_and_time_left():
    html = activity_html([TUNING])
    assert 'data-place="tune"' in html
    assert "Tuning &lt;Ann&gt;" in html
    assert "62 % · 40 s" in html


def test_without_running_work_nothing_is_shown():
    assert activity_html([]) == ""


def test_the_bar_is_not_filled_up():
    assert activity_html([TUNING] * 5).count("data-place") == MAX_SHOWN
