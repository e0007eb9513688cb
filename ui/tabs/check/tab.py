"""Check a recording, in the sheet behind the model: drop one, and see whether Encore made it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gradio as gr

from backend.background_tasks import BackgroundTask, TaskCancelled
from backend.errors import EncoreError
from backend.provenance.verdict import Verdict
from ui.context import PageContext
from ui.events import Update, bind, session_of
from ui.fields import build_note, build_title
from ui.html.messages import NOTHING, failure, says, task_line
from ui.html.words import time_in_words
from ui.tabs.check.render import verdict_card
from ui.words.words import say, word


class CheckPart:
    """Checks one file at a time for each session."""

    def __init__(self, context: PageContext, browser: gr.State) -> None:
        """Lay it out; `browser` names whose takes may be told."""
        self.context = context
        build_title("check.title")
        build_note("check.explained")
        self.file = gr.File(label=word("check.file"), height=170, elem_id="check-file")
        self.cancel = gr.Button(word("sheet.cancel"), elem_id="cancel-check")
        self.found = gr.HTML(NOTHING, elem_id="check-verdict")
        given = {"file": self.file, "browser": browser}
        bind(self.file.change, self._check, given, self.found, api="check", trigger_mode="always_last")
        bind(self.cancel.click, self._cancel, api="cancel_check", quick=True)

    def _check(self, file: str | None, browser: str, request: gr.Request) -> Iterator[Update]:
        """Say what a file carries."""
        if file is None:
            yield {self.found: NOTHING}
            return
        path, studio = Path(file), self.context.studio

        def work(task: BackgroundTask[Verdict]) -> Verdict:
            """Check the file in the background, until it is cancelled."""

            def tell(what: str, done: float, total: float | None) -> None:
                if task.is_cancelled():
                    raise TaskCancelled(say("voices.cancelled"))
                task.tell(round(done), round(total or 0), what)

            return studio.checker.check(path, progress=tell)

        try:
            verdict = yield from self.context.follow(
                _key(request),
                say("check.checking"),
                work,
                lambda state: {self.found: task_line(state, time_in_words)},
            )
            take = studio.takes.of_verdict(verdict)
        except TaskCancelled:
            yield {self.found: says("", say("voices.cancelled"))}
            return
        except EncoreError as error:
            yield {self.found: failure(error)}
            return
        is_own = take is not None and bool(browser) and take.owner == browser
        yield {self.found: verdict_card(verdict, take if is_own else None)}

    def _cancel(self, request: gr.Request) -> None:
        self.context.background_tasks.cancel(_key(request))


def _key(request: gr.Request) -> str:
    return f"check {session_of(request)}"
