"""Runs as they are: read from the store, so a page that comes back shows what one that stayed would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import gradio as gr
from gradio.blocks import Block

from backend.errors import EncoreError
from backend.runs.runs import Runs
from backend.runs.storage.records import CheckpointRecord, MetricRecord, RunRecord
from backend.runs.storage.states import RunState
from backend.store.trash import Deleted
from ui.context import PageContext
from ui.events import HIDE, SHOW, Update, bind
from ui.fields import Confirmation, FormIncomplete
from ui.html.messages import NOTHING, heading
from ui.tabs.finetune.log import RunLog
from ui.tabs.finetune.render import events_html, losses_html, run_choice, run_html, scores_html, takes_html
from ui.undo import Undo

POLL_SECONDS = 2.0
"""Steps take about as long, and each poll costs the machine that trains some milliseconds."""

Seen = tuple[str, str]
"""What a page shows of a run, and of its checkpoints, each as a text to compare."""

NOTHING_SEEN: Seen = ("", "")

_MAX_RUNS = 20


class LossHistory:
    """Losses as the page has read them, for all sessions: only new steps are read again, however long a run is."""

    def __init__(self) -> None:
        self._attempts: dict[str, int] = {}
        self._metrics: dict[str, list[MetricRecord]] = {}
        self._lock = threading.Lock()

    def read(self, runs: Runs, run: RunRecord) -> Sequence[MetricRecord]:
        """All steps of a run in order. Raises RunNotFound."""
        with self._lock:
            known = self._metrics.get(run.id, [])
            # A run that was resumed may have gone back to an earlier step.
            if self._attempts.get(run.id) != run.attempt or (known and known[-1].step > run.step):
                known = []
            known = [*known, *runs.metrics(run.id, known[-1].step if known else 0)]
            self._metrics.pop(run.id, None)
            self._metrics[run.id], self._attempts[run.id] = known, run.attempt
            for oldest in list(self._metrics)[:-_MAX_RUNS]:
                del self._metrics[oldest], self._attempts[oldest]
            return known


class RunWatch:
    """The list of runs, and how the chosen one is doing; hidden until there is a run."""

    def __init__(self, context: PageContext, tab: gr.Tab) -> None:
        self.context = context
        self._losses = LossHistory()
        with gr.Column(visible=False, elem_id="runs-section") as self.body:
            gr.HTML(heading("Runs"), elem_classes=["step"])
            self.chosen = gr.Dropdown([], value=None, label="Run", elem_id="run")
            self.status = gr.HTML(NOTHING, elem_id="run-status")
            with gr.Row():
                self.pause = gr.Button("Pause", min_width=120, elem_id="pause-run")
                self.resume = gr.Button("Resume", variant="primary", min_width=120, elem_id="resume-run")
                self.cancel = gr.Button("Cancel", min_width=120, elem_id="cancel-run")
                self.delete = gr.Button("Delete", variant="stop", min_width=120, elem_id="delete-run")
            self.confirmation = Confirmation("Yes, delete the run and its checkpoints", "-run")
        self.undo = Undo(context, "run")
        with gr.Column(visible=False) as self.reports:
            self.losses = gr.HTML(NOTHING, elem_id="losses")
            self.scores = gr.HTML(NOTHING, elem_id="checkpoint-scores")
            self.takes = gr.HTML(NOTHING, elem_id="checkpoint-takes")
            self.events = gr.HTML(NOTHING, elem_id="run-events")
            RunLog(context, self.chosen)
        self.seen = gr.State(NOTHING_SEEN)
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        self._connect(tab)

    @property
    def shown(self) -> list[Block]:
        """What `show` changes."""
        buttons: list[Block] = [self.pause, self.resume, self.cancel, self.delete, self.confirmation.row]
        reports = [self.losses, self.events, self.scores, self.takes]
        return [self.seen, self.timer, self.body, self.reports, self.status, *buttons, *reports]

    def refresh(self, chosen: str | None) -> Update:
        """All runs in the list; the chosen one, else one that is running, else the newest; and how it is doing."""
        runs = self._runs.list()
        ids = [run.id for run in runs]
        active = [run.id for run in runs if run.state.is_active]
        value = chosen if chosen in ids else next(iter([*active, *ids]), None)
        choices = [(run_choice(run), run.id) for run in runs]
        return {self.chosen: gr.update(choices=choices, value=value), **self.show(value)}

    def show(self, chosen: str | None, seen: Seen = NOTHING_SEEN) -> Update:
        """How a run is doing; what the page has `seen` already is left as it is."""
        try:
            run = self._check_process(self._runs.get(chosen)) if chosen else None
        except EncoreError:
            run = None
        if run is None:
            return {self.seen: NOTHING_SEEN, self.timer: gr.Timer(active=False), self.body: HIDE, self.reports: HIDE}
        checkpoints = self._runs.checkpoints(run.id)
        now = (_run_signature(run), repr([(point.name, point.state) for point in checkpoints]))
        if now == seen:
            return {}
        is_active, state = run.state.is_active, run.state
        update: Update = {
            self.seen: now,
            self.timer: gr.Timer(active=is_active),
            self.body: SHOW,
            self.reports: SHOW,
            self.status: run_html(run, self._runs.newest_measures(run.id), self._runs.seconds_left(run.id)),
            self.pause: gr.update(visible=is_active),
            self.resume: gr.update(visible=state.can_resume),
            self.cancel: gr.update(visible=is_active or state in (RunState.PAUSED, RunState.INTERRUPTED)),
            self.delete: gr.update(visible=not is_active),
            self.losses: losses_html(self._losses.read(self._runs, run)),
            self.events: events_html(self._runs.events(run.id)),
        }
        if now[0] != seen[0]:
            update[self.confirmation.row] = HIDE
        # Not more often than needed: a player that is drawn anew falls silent.
        if now[1] != seen[1] or state is RunState.DONE:
            update[self.scores] = scores_html(checkpoints, run.best_checkpoint)
            update[self.takes] = self._takes(run, checkpoints)
        return update

    @property
    def _runs(self) -> Runs:
        return self.context.studio.runs

    def _connect(self, tab: gr.Tab) -> None:
        chosen, listed = {"chosen": self.chosen}, [self.chosen, *self.shown]
        bind([tab.select, self.context.page.load], self.refresh, chosen, listed, api="list_runs")
        bind(self.chosen.input, self.show, chosen, self.shown, api="show_run")
        bind(self.timer.tick, self.show, {**chosen, "seen": self.seen}, self.shown, quick=True)
        for button, verb in (
            (self.pause, "pause"),
            (self.resume, "resume"),
            (self.cancel, "cancel"),
        ):
            bind(button.click, self._doing(verb), chosen, listed, api=f"{verb}_run")
        self.confirmation.ask_on(self.delete)
        deleted = [*listed, *self.undo.shown]
        bind(self.confirmation.really.click, self._delete, chosen, deleted, api="delete_run")
        self.undo.connect(self._restore, {}, listed)

    def _doing(self, verb: str) -> Callable[[str | None], Update]:
        """A handler that does something to a run, named like a method of `Runs`, and shows it."""

        def act(chosen: str | None) -> Update:
            """Do it to the chosen run, and show the run as it is now."""
            if not chosen:
                raise FormIncomplete("Choose a run first.")
            getattr(self._runs, verb)(chosen)
            return self.refresh(chosen)

        return act

    def _delete(self, chosen: str | None) -> Update:
        if not chosen:
            raise FormIncomplete("Choose a run first.")
        return {**self.undo.offer(self._runs.delete(chosen)), **self.refresh(None)}

    def _restore(self, deleted: Deleted) -> Update:
        return self.refresh(self.context.studio.trash.restore(deleted.id).item_id)

    def _check_process(self, run: RunRecord) -> RunRecord:
        """A run whose process was killed says so; the row alone would call it running for ever."""
        if run.state.is_active and not self._runs.is_looked_after(run.id):
            self._runs.reconcile(resume=False)
            return self._runs.get(run.id)
        return run

    def _takes(self, run: RunRecord, checkpoints: Sequence[CheckpointRecord]) -> str:
        folder = self._runs.folder(run.id)
        files = [take.file for point in checkpoints for take in point.takes]
        places = {file: self.context.files.place(folder / file) for file in files}
        playable = {file: place for file, place in places.items() if place is not None}
        return takes_html(checkpoints, playable, run.best_checkpoint)


def _run_signature(run: RunRecord) -> str:
    return repr((run.id, run.state, run.step, run.message, run.verdict, run.attempt, run.best_checkpoint))
