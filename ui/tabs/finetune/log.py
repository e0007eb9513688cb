"""What a run leaves to read: a page to keep and to send, and the log, which grows while one looks at it."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr

from ui.context import PageContext
from ui.events import Update, bind, session_of
from ui.fields import FormIncomplete
from ui.html.messages import NOTHING, says, task_line
from ui.tabs.finetune.render import log_html, report_line
from ui.words.words import say, word

POLL_SECONDS = 2.0
LOG_CHARACTERS = 20_000
"""The end of a log is what a person looks for."""


class RunLog:
    """Report and log of the run whose id `chosen` holds."""

    def __init__(self, context: PageContext, chosen: gr.Dropdown) -> None:
        self.context = context
        self.write = gr.Button(word("tune.write_report"), min_width=160, elem_id="write-report")
        self.report = gr.HTML(NOTHING, elem_id="report")
        with gr.Accordion(word("tune.log"), open=False, elem_id="run-log-fold") as self.fold:
            self.log = gr.HTML(NOTHING, elem_id="run-log")
        self.seen = gr.State("")
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        run, shown = {"run_id": chosen}, [self.log, self.seen]
        # Only while the log is open.
        bind(self.fold.expand, self._open, run, [*shown, self.timer], quick=True)
        bind(self.fold.collapse, lambda: {self.timer: gr.Timer(active=False)}, None, self.timer, quick=True)
        bind(self.timer.tick, self._follow, {**run, "before": self.seen}, shown, quick=True)
        bind(chosen.change, self._clear, None, [*shown, self.report], quick=True)
        bind(self.write.click, self._write, run, self.report, api="write_report")

    def _open(self, run_id: str | None) -> Update:
        return {**self._follow(run_id, None), self.timer: gr.Timer(active=True)}

    def _follow(self, run_id: str | None, before: str | None) -> Update:
        """The log's end, if something was written since."""
        log = self.context.studio.runs.log(run_id)[-LOG_CHARACTERS:] if run_id else ""
        return {self.log: log_html(log), self.seen: log} if log != before else {}

    def _clear(self) -> Update:
        return {self.log: NOTHING, self.seen: "", self.report: NOTHING}

    def _write(self, run_id: str | None, request: gr.Request) -> Iterator[Update]:
        """Write the report, and link to it."""
        if not run_id:
            raise FormIncomplete(say("tune.choose_first"))
        yield {self.report: says("", f"{say('tune.writing_report')} …")}
        written = yield from self.context.follow(
            f"report {session_of(request)}",
            say("tune.writing_report"),
            # All takes are in it.
            lambda _: self.context.studio.runs.write_report(run_id),
            lambda state: {self.report: task_line(state)},
        )
        path = self.context.files.place(written)
        assert path is not None, "it was just written"
        yield {self.report: report_line(self.context.studio.runs.get(run_id), path, path.stat().st_size)}
