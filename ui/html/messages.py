"""Messages that all tabs share: framed sentences, progress bars, and the state of a background task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from markupsafe import Markup

from backend.background_tasks import TaskState
from backend.web.redaction import public_message
from ui.html.templates import html
from ui.html.words import file_url, time_in_words, time_left
from ui.words.sentences import translated
from ui.words.words import say

NOTHING = Markup('<div class="says-nothing" role="status"></div>')
"""Stands where a message will appear: screen readers announce changes only of elements that are already there."""

QUIET_SECONDS = 2.0
"""A task that takes longer shows its elapsed time."""


def says(tone: str, text: str, *, more: str = "", role: str = "status") -> Markup:
    """A framed message; `tone` is good, mixed, bad or empty. Text that is not `Markup` is escaped."""
    return html('<div class="says {}" role="{}"><p>{}</p>{}</div>', tone, role, text, more)


def reason(error: object) -> str:
    """What an error says, in the language of the page and without the folders of this machine."""
    return translated(public_message(error))


def failure(error: object) -> Markup:
    """Why something did not happen."""
    return says("bad", reason(error), role="alert")


def note(text: str) -> Markup:
    """A remark in small print."""
    return html('<p class="note">{}</p>', text)


def cards(rendered: Iterable[str]) -> Markup:
    """Several messages below each other."""
    joined = Markup().join(rendered)
    return html('<div class="cards">{}</div>', joined) if joined else NOTHING


def progress_bar(label: str, percent: int) -> Markup:
    """A bar with its value for screen readers."""
    return html(
        '<div class="progress-track" role="progressbar" aria-label="{}" aria-valuemin="0" aria-valuemax="100" '
        'aria-valuenow="{}"><div style="width:{}%"></div></div>',
        *(label, percent, percent),
    )


def task_line(state: TaskState[Any] | None, count: Callable[[int], str] = str) -> Markup:
    """Progress of a background task, its numbers written by `count`; nothing once it has succeeded."""
    if state is None or not (state.is_running or state.problem):
        return NOTHING
    if not state.is_running:
        return failure(state.problem)
    if not state.num_total:
        elapsed = f" {say('fields.so_far', time=time_in_words(state.seconds_so_far))}"
        return says("", f"{state.what} …{elapsed if state.seconds_so_far > QUIET_SECONDS else ''}")
    bar = progress_bar(state.what, 100 * state.num_done // state.num_total)
    done = say("fields.done_of", done=count(state.num_done), total=count(state.num_total))
    return says("", f"{state.what}: {done}{time_left(state.seconds_left)}.", more=bar)


def download_link(path: Path, words: str, name: str | None = None) -> Markup:
    """A link that saves a file, as `name` if it is to be called otherwise."""
    return html('<a class="download" href="{}" download="{}">{}</a>', file_url(path), name or path.name, words)
