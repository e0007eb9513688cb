"""Runs as they are: read from the store, so a page that comes back shows what one that stayed would."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import gradio as gr
from gradio.blocks import Block

from backend.errors import EncoreError
from backend.runs.process.select_checkpoint import winner
from backend.runs.runs import Runs
from backend.runs.storage.records import CheckpointRecord, MetricRecord, RunRecord
from backend.runs.storage.states import RunState
from backend.store.trash import Deleted
from training.machine import Machine
from ui.context import PageContext
from ui.events import FOCUS_REFUSAL, HIDE, SHOW, Update, answered_in, bind
from ui.fields import FormIncomplete
from ui.html.messages import NOTHING
from ui.html.methods import methods_html
from ui.tabs.finetune.log import RunLog
from ui.tabs.finetune.render import (
    dots_html,
    events_html,
    losses_html,
    result_html,
    run_choice,
    run_html,
    scores_html,
    takes_html,
)
from ui.undo import Undo
from ui.words.words import say, word

POLL_SECONDS = 2.0
"""Steps take about as long, and each poll costs the machine that trains some milliseconds."""

NEW = ""
"""Chosen instead of a run: the form for another one."""

RECENT_SECONDS = 3600.0
"""A run that ended within the hour is what one comes back for."""

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
    """How the chosen run is doing, where the form stood; without one there is the form."""

    def __init__(self, context: PageContext, tab: gr.Tab, chosen: gr.Dropdown, form: gr.Column) -> None:
        self.context, self.chosen, self.form = context, chosen, form
        self._losses = LossHistory()
        self._cancelling: set[tuple[str, int]] = set()
        self._is_there = Machine.here().address is not None
        script = Path(__file__).with_name("run.js").read_text(encoding="utf-8")
        self.undo = Undo(context, "run")
        with gr.Column(visible=False, elem_id="runs-section") as self.body:
            self.status = gr.HTML(NOTHING, elem_id="run-status", js_on_load=script)
            with gr.Row(elem_id="run-keys"):
                self.resume = gr.Button(
                    word("tune.resume"), variant="primary", size="sm", min_width=100, elem_id="resume-run"
                )
                self.pause = gr.Button(word("tune.pause"), size="sm", min_width=100, elem_id="pause-run")
                self.cancel = gr.Button(word("tune.cancel"), size="sm", min_width=100, elem_id="cancel-run")
                self.again = gr.Button(word("tune.another"), size="sm", min_width=140, elem_id="tune-again")
            self.said = gr.HTML(NOTHING, elem_id="run-refused", js_on_load=FOCUS_REFUSAL)
            self.result = gr.HTML(NOTHING, elem_id="run-result", js_on_load=script)
            self.dots = gr.HTML(NOTHING, elem_id="run-dots")
            with gr.Accordion(word("tune.engineers"), open=False, elem_id="run-engineers"):
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
        buttons: list[Block] = [self.pause, self.resume, self.cancel, self.again]
        reports = [self.result, self.dots, self.losses, self.events, self.scores, self.takes]
        return [self.seen, self.timer, self.form, self.body, self.status, *buttons, *reports]

    def refresh(self, chosen: str | None) -> Update:
        """All runs in the list; the chosen one, else one that is running or has just ended; and how it is doing."""
        runs = self._runs.list()
        value = chosen if chosen in (NEW, *(run.id for run in runs)) else self._at_hand(runs)
        choices = [(say("tune.new"), NEW), *((run_choice(run), run.id) for run in runs)]
        return {self.chosen: gr.update(choices=choices, value=value, visible=bool(runs)), **self.show(value)}

    def _at_hand(self, runs: Sequence[RunRecord]) -> str:
        """What one wants to see when one comes back: what is running, or what ended a short while ago."""
        active = [run.id for run in runs if run.state.is_active]
        recent = [run.id for run in runs if time.time() - (run.ended_at or run.created_at) < RECENT_SECONDS]
        return next(iter([*active, *recent]), NEW)

    def show(self, chosen: str | None, seen: Seen = NOTHING_SEEN) -> Update:
        """How a run is doing; what the page has `seen` already is left as it is."""
        try:
            run = self._check_process(self._runs.get(chosen)) if chosen else None
        except EncoreError:
            run = None
        if run is None:
            return {self.seen: NOTHING_SEEN, self.timer: gr.Timer(active=False), self.body: HIDE, self.form: SHOW}
        checkpoints = self._runs.checkpoints(run.id)
        is_active, state = run.state.is_active, run.state
        is_cancelling = is_active and (run.id, run.attempt) in self._cancelling
        waits_for = self._before(run)
        now = (
            f"{_run_signature(run)} {is_cancelling} {waits_for}",
            repr([(one.name, one.state) for one in checkpoints]),
        )
        if now == seen:
            return {}
        left = self._runs.seconds_left(run.id)
        update: Update = {
            self.seen: now,
            self.timer: gr.Timer(active=is_active),
            self.form: HIDE,
            self.body: SHOW,
            self.status: run_html(
                run,
                self._runs.newest_measures(run.id),
                left,
                waits_for,
                is_there=self._is_there,
                is_cancelling=is_cancelling,
            ),
            self.pause: gr.update(visible=is_active, interactive=not is_cancelling),
            self.resume: gr.update(visible=state.can_resume),
            self.cancel: gr.update(
                visible=is_active or state in (RunState.PAUSED, RunState.INTERRUPTED), interactive=not is_cancelling
            ),
            self.again: gr.update(visible=not is_active),
            self.losses: losses_html(self._losses.read(self._runs, run)),
            self.events: events_html(self._runs.events(run.id)),
        }
        # Not more often than needed: what is drawn anew loses the focus.
        if now[1] != seen[1] or state is RunState.DONE or seen == NOTHING_SEEN:
            places = self._places(run, checkpoints)
            starred = winner(run.best_checkpoint, checkpoints)
            update[self.scores] = scores_html(checkpoints, starred)
            update[self.takes] = takes_html(checkpoints, places, starred)
            update[self.dots] = dots_html(run, checkpoints, places)
            methods = methods_html(self._runs.methods(run.id) if state is RunState.DONE else (), run.id)
            update[self.result] = result_html(run, checkpoints, places, self._voices_of(run), methods)
        return update

    def _before(self, run: RunRecord) -> str:
        """The voice of the run that a waiting one waits for; empty where it waits for none."""
        if run.state is not RunState.QUEUED:
            return ""
        others = [one for one in self._runs.list() if one.state.is_active and one.id != run.id]
        return next((one.voice for one in others if one.state is not RunState.QUEUED), "")

    def _voices_of(self, run: RunRecord) -> dict[str, str]:
        """The voices of the library that a run has made, by the names of its speakers; they may have been renamed."""
        made = [voice for voice in self.context.studio.voices.list() if voice.run_id == run.id]
        if not run.job.more_speakers:
            return {run.job.voice: made[0].id} if made else {}
        names = {speaker.dataset.name: speaker.voice for speaker in run.job.speakers}
        known = {str(voice.provenance.get("dataset")): voice.id for voice in made}
        return {name: known[dataset] for dataset, name in names.items() if dataset in known}

    @property
    def _runs(self) -> Runs:
        return self.context.studio.runs

    def _connect(self, tab: gr.Tab) -> None:
        chosen, listed = {"chosen": self.chosen}, [self.chosen, *self.shown]
        bind([tab.select, self.context.page.load], self.refresh, chosen, listed, api="list_runs")
        bind(self.chosen.input, self.show, chosen, self.shown, api="show_run")
        bind(self.timer.tick, self.show, {**chosen, "seen": self.seen}, self.shown, quick=True)
        for button, verb in ((self.pause, "pause"), (self.resume, "resume")):
            act = answered_in(self.said, self._doing(verb))
            bind(button.click, act, chosen, [*listed, self.said], api=f"{verb}_run")
        bind(self.cancel.click, self._cancel, chosen, [*listed, self.said], api="cancel_run")
        bind(self.again.click, lambda: {self.chosen: NEW, **self.show(NEW)}, None, listed, quick=True)
        deleted = [*listed, *self.undo.shown]
        bind(self.status.click, self._delete, chosen, deleted, api="delete_run")
        self.undo.connect(self._restore, {}, listed)

    def _doing(self, verb: str) -> Callable[[str | None], Update]:
        """A handler that does something to a run, named like a method of `Runs`, and shows it."""

        def act(chosen: str | None) -> Update:
            """Do it to the chosen run, and show the run as it is now."""
            if not chosen:
                raise FormIncomplete(say("tune.choose_first"))
            getattr(self._runs, verb)(chosen)
            return self.refresh(chosen)

        return act

    def _cancel(self, chosen: str | None) -> Iterator[Update]:
        """Say at once that it is being cancelled: a step or two is brought to an end first."""
        if chosen:
            run = self._runs.get(chosen)
            self._cancelling.add((run.id, run.attempt))
            yield self.show(chosen)
        yield from answered_in(self.said, self._doing("cancel"))(chosen)

    def _delete(self, chosen: str | None) -> Update:
        if not chosen:
            raise FormIncomplete(say("tune.choose_first"))
        return {**self.undo.offer(self._runs.delete(chosen)), **self.refresh(NEW)}

    def _restore(self, deleted: Deleted) -> Update:
        return self.refresh(self.context.studio.trash.restore(deleted.id).item_id)

    def _check_process(self, run: RunRecord) -> RunRecord:
        """A run whose process was killed says so; the row alone would call it running for ever."""
        if run.state.is_active and not self._runs.is_looked_after(run.id):
            self._runs.reconcile(resume=False)
            return self._runs.get(run.id)
        return run

    def _places(self, run: RunRecord, checkpoints: Sequence[CheckpointRecord]) -> dict[str, Path]:
        """Where the page may fetch each take that is there."""
        folder = self._runs.folder(run.id)
        files = [take.file for point in checkpoints for take in point.takes]
        places = {file: self.context.files.place(folder / file) for file in files}
        return {file: place for file, place in places.items() if place is not None}


def _run_signature(run: RunRecord) -> str:
    return repr((run.id, run.state, run.step, run.message, run.verdict, run.attempt, run.best_checkpoint))
