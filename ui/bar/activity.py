"""What is running, on every tab: builds and fine-tunes with their share and what is left; a click leads there."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr
from markupsafe import Markup

from backend.dataset.errors import DatasetError
from backend.studio import Studio
from ui.context import PageContext
from ui.events import Update, bind
from ui.html.templates import render
from ui.html.words import time_in_words
from ui.words.words import say

POLL_SECONDS = 2.0
IDLE_POLL_SECONDS = 5.0

MAX_SHOWN = 2
"""More would leave no room in the bar."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """Something that is running: where it is looked at, what it is, and how far."""

    place: str
    what: str
    percent: int
    left: str


class ActivityPart:
    """The chips of what is running; empty most of the time."""

    def __init__(self, context: PageContext) -> None:
        self._studio = context.studio
        self.shown = gr.HTML("", elem_id="activity", js_on_load=None, apply_default_css=False)
        self.seen = gr.State("")
        # Not when the page is opened: datasets bring Ray along, which takes seconds to load.
        self.timer = gr.Timer(POLL_SECONDS)
        bind(self.timer.tick, self._look, {"seen": self.seen}, [self.shown, self.seen, self.timer], quick=True)

    def _look(self, seen: str) -> Update:
        running = list_running(self._studio)
        shown = str(activity_html(running))
        if shown == seen:
            return {}
        return {
            self.shown: shown,
            self.seen: shown,
            self.timer: gr.Timer(POLL_SECONDS if running else IDLE_POLL_SECONDS),
        }


def activity_html(running: list[Running]) -> Markup:
    """The chips, or nothing."""
    return render("bar", "activity", rows=running[:MAX_SHOWN]) if running else Markup()


def list_running(studio: Studio) -> list[Running]:
    """Fine-tunes first, then builds."""
    tunes = [
        Running(
            place="tune",
            what=say("bar.tuning", name=run.voice),
            percent=round(100 * run.share_done),
            left=_left(studio.runs.seconds_left(run.id)),
        )
        for run in studio.runs.list()
        if run.state.is_active
    ]
    return tunes + [build for name in studio.datasets.list() if (build := _build(studio, name)) is not None]


def _build(studio: Studio, name: str) -> Running | None:
    try:
        progress = studio.datasets.progress(name)
    except DatasetError:
        return None
    if progress is None or not progress.is_running:
        return None
    percent = 100 * progress.num_done // progress.num_total if progress.num_total else 0
    left = [stage.seconds_left for stage in progress.stages if stage.seconds_left]
    return Running(
        place="data", what=say("bar.building", name=name), percent=min(percent, 99), left=_left(sum(left) or None)
    )


def _left(seconds: float | None) -> str:
    return time_in_words(seconds) if seconds else ""
