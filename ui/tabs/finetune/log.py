"""What a run leaves to read: a page to keep and to send, and the log, which grows while one looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.context import PageContext
from ui.errors import shows_errors, stream_shows_errors
from ui.html import base as render
from ui.live.follow import follow as follow_work
from ui.tabs.dataset import render as render_dataset
from ui.tabs.finetune import render as render_finetune
from ui.tabs.voice.speak import NotReady

POLL_SECONDS = 2.0
LOG_CHARACTERS = 20_000
"""The end of a log is what a person looks for."""


@dataclass(frozen=True, kw_only=True)
class ReadingPart:
    """Its components."""

    write: gr.Button
    report: gr.HTML
    fold: gr.Accordion
    log: gr.HTML
    seen: gr.State
    timer: gr.Timer


def build_reading() -> ReadingPart:
    """Lay it out."""
    write = gr.Button("Write a report to keep", min_width=160, elem_id="write-report")
    report = gr.HTML(render.NOTHING, elem_id="report")
    with gr.Accordion("Log", open=False, elem_id="run-log-fold") as fold:
        log = gr.HTML(render.NOTHING, elem_id="run-log")
    return ReadingPart(
        write=write,
        report=report,
        fold=fold,
        log=log,
        seen=gr.State(""),
        timer=gr.Timer(POLL_SECONDS, active=False),
    )


def connect_reading(context: PageContext, part: ReadingPart, chosen: gr.Dropdown) -> None:
    """Make it work; `chosen` holds the id of the run."""

    def read(run_id: str | None) -> list[str]:
        """The log's end, for the page and to compare with later."""
        log = context.studio.runs.log(run_id)[-LOG_CHARACTERS:] if run_id else ""
        return [render_finetune.log_html(log), log]

    def follow(run_id: str | None, before: str) -> list[Any]:
        """The same, where something was written since."""
        now = read(run_id)
        return [gr.skip(), gr.skip()] if now[1] == before else now

    def write(run_id: str | None, request: gr.Request) -> Iterator[str]:
        """Write the report, and link to it."""
        if not run_id:
            raise NotReady("Choose a run first.")
        yield render.says("", "Writing the report …")
        written = yield from follow_work(
            context.background_tasks,
            f"report {request.session_hash}",
            "Writing the report",
            # All takes are in it.
            lambda _: context.studio.runs.write_report(run_id),
            render_dataset.task_line,
        )
        path = context.files.place(written)
        assert path is not None, "it was just written"
        yield render_finetune.report_line(context.studio.runs.get(run_id), path, path.stat().st_size)

    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    shown = [part.log, part.seen]
    part.fold.expand(shows_errors(read), chosen, shown, **quiet)
    # Only while somebody looks.
    part.fold.expand(lambda: gr.Timer(active=True), None, part.timer, **quiet)
    part.fold.collapse(lambda: gr.Timer(active=False), None, part.timer, **quiet)
    part.timer.tick(shows_errors(follow), [chosen, part.seen], shown, **quiet)
    chosen.change(lambda: [render.NOTHING, "", render.NOTHING], None, [*shown, part.report], **quiet)
    part.write.click(
        stream_shows_errors(write),
        chosen,
        part.report,
        show_progress="hidden",
        api_name="write_report",
        api_visibility="undocumented",
    )
