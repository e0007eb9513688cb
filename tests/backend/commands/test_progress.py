"""What the commands show of how far they are: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from backend.commands.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_one_bar_that_is_cleared() -> None:
    terminal = Terminal()
    with Progress(terminal, unit="step", delay_seconds=0) as progress:
        progress.show("one: Training.", 0, 10)
        progress.show("one: Training.", 5, 10)
    shown = terminal.getvalue()
    assert "one: Training." in shown
    assert "\n" not in shown
    assert shown.endswith("\r")


def test_quick_work_shows_nothing() -> None:
    terminal = Terminal()
    with Progress(terminal, delay_seconds=3600) as progress:
        progress.show("Downloading x", 5, 10)
    assert "Downloading" not in terminal.getvalue()


def test_progress_may_go_back_where_a_run_trains_steps_again() -> None:
    with Progress(Terminal(), delay_seconds=0) as progress:
        for step in (8, 4, 9):
            progress.show("one", step, 10)
        assert progress._bar.n == 9


def test_without_a_terminal_a_line_is_printed_for_each_part_and_each_stage() -> None:
    file = io.StringIO()
    with Progress(file, num_lines=2) as progress:
        for step in range(10):
            progress.show("one", step, 10, line=f"step {step}", stage="running")
        progress.show("one", 9, 10, line="evaluating", stage="evaluating")
    assert file.getvalue().splitlines() == ["step 0", "step 5", "evaluating"]


def test_without_a_terminal_nothing_is_printed_unless_asked_for() -> None:
    file = io.StringIO()
    with Progress(file) as progress:
        progress.show("Downloading x", 5, 10)
    assert file.getvalue() == ""
