"""Fine-tunes as they are: read from the store, so a page that comes back shows what one that stayed would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from backend.errors import EncoreError
from backend.runs.storage.records import CheckpointRecord, RunRecord
from backend.runs.storage.states import RunState
from ui.context import PageContext
from ui.errors import shows_errors
from ui.html import base as render
from ui.tabs.finetune import render as render_finetune
from ui.tabs.finetune.log import ReadingPart, build_reading
from ui.tabs.finetune.loss_history import LossHistory
from ui.tabs.voice.speak import NotReady

POLL_SECONDS = 2.0
"""Steps take about as long, and each look costs the machine that trains some milliseconds."""

Values = list[Any]
"""For Gradio: one for each output."""

Seen = tuple[str, str]
"""What a page shows of a run, and of its checkpoints, each as a text to compare."""

NOTHING_SEEN: Seen = ("", "")


@dataclass(frozen=True, kw_only=True)
class WatchPart:
    """Its components."""

    chosen: gr.Dropdown
    body: gr.Column
    status: gr.HTML
    pause: gr.Button
    resume: gr.Button
    cancel: gr.Button
    delete: gr.Button
    certain: gr.Row
    really: gr.Button
    back: gr.Button
    losses: gr.HTML
    events: gr.HTML
    scores: gr.HTML
    takes: gr.HTML
    reading: ReadingPart
    seen: gr.State
    timer: gr.Timer

    @property
    def shown(self) -> Values:
        """What `RunWatch.show` gives values for."""
        buttons = [self.pause, self.resume, self.cancel, self.delete, self.certain]
        return [
            *(self.seen, self.timer, self.body, self.status, *buttons),
            *(self.losses, self.events, self.scores, self.takes),
        ]

    @property
    def unchanged(self) -> Values:
        """As many values as `shown`, to leave all as it is."""
        return [gr.skip()] * len(self.shown)


def build_watch() -> WatchPart:
    """Lay it out; hidden until there is a run."""
    with gr.Column(visible=False, elem_id="runs-section") as body:
        gr.HTML("<h2>Runs</h2>", elem_classes=["step"])
        chosen = gr.Dropdown([], value=None, label="Run", elem_id="run")
        status = gr.HTML(render.NOTHING, elem_id="run-status")
        with gr.Row():
            pause = gr.Button("Pause", min_width=120, elem_id="pause-run")
            resume = gr.Button("Resume", variant="primary", min_width=120, elem_id="resume-run")
            cancel = gr.Button("Cancel", min_width=120, elem_id="cancel-run")
            delete = gr.Button("Delete", variant="stop", min_width=120, elem_id="delete-run")
        with gr.Row(visible=False) as certain:
            really = gr.Button("Yes, delete the run and its checkpoints", variant="stop", elem_id="really-delete-run")
            back = gr.Button("No, keep it")
        losses = gr.HTML(render.NOTHING, elem_id="losses")
        scores = gr.HTML(render.NOTHING, elem_id="checkpoint-scores")
        takes = gr.HTML(render.NOTHING, elem_id="checkpoint-takes")
        events = gr.HTML(render.NOTHING, elem_id="run-events")
        reading = build_reading()
    return WatchPart(
        chosen=chosen,
        body=body,
        status=status,
        pause=pause,
        resume=resume,
        cancel=cancel,
        delete=delete,
        certain=certain,
        really=really,
        back=back,
        losses=losses,
        events=events,
        scores=scores,
        takes=takes,
        reading=reading,
        seen=gr.State(NOTHING_SEEN),
        timer=gr.Timer(POLL_SECONDS, active=False),
    )


class RunWatch:
    """What the handlers of this part do."""

    def __init__(self, context: PageContext) -> None:
        self._bench = context
        self._losses = LossHistory()

    def list(self, chosen: str | None) -> Values:
        """All runs in the list; the chosen one, else one at work, else the newest; and how it is doing."""
        runs = self._bench.studio.runs.list()
        ids = [run.id for run in runs]
        active = [run.id for run in runs if run.state.is_active]
        value = chosen if chosen in ids else next(iter([*active, *ids]), None)
        choices = [(render_finetune.run_choice(run), run.id) for run in runs]
        return [gr.update(choices=choices, value=value), *self.show(value)]

    def show(self, run_id: str | None, seen: Seen = NOTHING_SEEN) -> Values:
        """Values for `WatchPart.shown`; what the page has `seen` already is left as it is."""
        if not run_id:
            return _no_run()
        runs = self._bench.studio.runs
        try:
            run = self._look_after(runs.get(run_id))
        except EncoreError:
            return _no_run()
        checkpoints = runs.checkpoints(run_id)
        now = (_run_signature(run), repr([(point.name, point.state) for point in checkpoints]))
        if now == seen:
            return [gr.skip()] * 13
        has_new_checkpoints = now[1] != seen[1] or run.state is RunState.DONE
        return [
            now,
            gr.Timer(active=run.state.is_active),
            gr.update(visible=True),
            render_finetune.run_html(run, runs.newest_measures(run_id), runs.seconds_left(run_id)),
            gr.update(visible=run.state.is_active),
            gr.update(visible=run.state.can_resume),
            gr.update(visible=run.state.is_active or run.state in (RunState.PAUSED, RunState.INTERRUPTED)),
            gr.update(visible=not run.state.is_active),
            gr.update(visible=False) if now[0] != seen[0] else gr.skip(),
            render_finetune.losses_html(self._losses.read(runs, run)),
            render_finetune.events_html(runs.events(run_id)),
            # Not more often than needed: a player that is drawn anew falls silent.
            render_finetune.scores_html(checkpoints, run.best_checkpoint) if has_new_checkpoints else gr.skip(),
            self._takes(run, checkpoints) if has_new_checkpoints else gr.skip(),
        ]

    def act(self, verb: Callable[[str], None], run_id: str | None) -> Values:
        """Do something to a run, and show it."""
        if not run_id:
            raise NotReady("Choose a run first.")
        verb(run_id)
        return self.list(run_id)

    def pause(self, run_id: str) -> None:
        """See `Runs.pause`."""
        self._bench.studio.runs.pause(run_id)

    def resume(self, run_id: str) -> None:
        """See `Runs.resume`."""
        self._bench.studio.runs.resume(run_id)

    def cancel(self, run_id: str) -> None:
        """See `Runs.cancel`."""
        self._bench.studio.runs.cancel(run_id)

    def delete(self, run_id: str) -> None:
        """See `Runs.delete`."""
        self._bench.studio.runs.delete(run_id)

    def _look_after(self, run: RunRecord) -> RunRecord:
        """A run whose process was killed says so; the row alone would call it running for ever."""
        runs = self._bench.studio.runs
        if run.state.is_active and not runs.is_looked_after(run.id):
            runs.reconcile(resume=False)
            return runs.get(run.id)
        return run

    def _takes(self, run: RunRecord, checkpoints: Sequence[CheckpointRecord]) -> str:
        folder = self._bench.studio.runs.folder(run.id)
        files = [take.file for point in checkpoints for take in point.takes]
        places: dict[str, Path] = {}
        for file in files:
            place = self._bench.files.place(folder / file)
            if place is not None:
                places[file] = place
        return render_finetune.takes_html(checkpoints, places, run.best_checkpoint)


def connect_watch(runs: RunWatch, part: WatchPart) -> None:
    """Make it work."""
    part.chosen.input(
        shows_errors(runs.show),
        part.chosen,
        part.shown,
        show_progress="hidden",
        api_name="show_run",
        api_visibility="undocumented",
    )
    part.timer.tick(
        shows_errors(runs.show),
        [part.chosen, part.seen],
        part.shown,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
    for button, verb, name in (
        (part.pause, runs.pause, "pause_run"),
        (part.resume, runs.resume, "resume_run"),
        (part.cancel, runs.cancel, "cancel_run"),
        (part.really, runs.delete, "delete_run"),
    ):
        button.click(
            shows_errors(lambda run_id, verb=verb: runs.act(verb, run_id)),
            part.chosen,
            [part.chosen, *part.shown],
            show_progress="hidden",
            api_name=name,
            api_visibility="undocumented",
        )
    part.delete.click(lambda: gr.update(visible=True), None, part.certain, queue=False, api_visibility="private")
    part.back.click(lambda: gr.update(visible=False), None, part.certain, queue=False, api_visibility="private")


def _run_signature(run: RunRecord) -> str:
    return repr((run.id, run.state, run.step, run.message, run.verdict, run.attempt, run.best_checkpoint))


def _no_run() -> Values:
    nothing = [render.NOTHING] * 4
    hidden = [gr.update(visible=False)] * 5
    return [NOTHING_SEEN, gr.Timer(active=False), gr.update(visible=False), render.NOTHING, *hidden, *nothing]
