"""The lower half of the Data tab: totals, the table of clips, and what is done with all of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import gradio as gr
from gradio.blocks import Block

from backend.audio.quality import peak_envelope
from backend.background_tasks import BackgroundTask, BackgroundTasks
from backend.dataset.clips.views import ClipRow, DatasetView, TranscriptChange
from backend.errors import EncoreError
from backend.evaluation.take_scores import read_own_wav
from ui.context import PageContext
from ui.events import HIDE, SHOW, Inputs, Update, bind
from ui.html.messages import NOTHING, heading, note, task_line
from ui.html.words import count_of
from ui.tabs.dataset.render import (
    FILTERS,
    PAGE_CLIPS,
    SORTS,
    HeardClip,
    changes_html,
    clips_table,
    exported_line,
    numbers_of,
    plots_html,
    select_clips,
    stale_line,
    totals_html,
)
from ui.web.temporary import unguessable_path

NUM_BARS = 60
POLL_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a task with all clips came to: texts heard otherwise, or an archive and its number of clips."""

    changes: tuple[TranscriptChange, ...] | None = None
    exported: tuple[Path, int] | None = None


class ClipsPart:
    """The clips of the `chosen` dataset; `tasks` are by its name. Hidden until there is a clip."""

    def __init__(self, context: PageContext, chosen: gr.Dropdown) -> None:
        self.context, self.chosen = context, chosen
        self.tasks: BackgroundTasks[Outcome] = BackgroundTasks()
        script = Path(__file__).with_name("clip_buttons.js").read_text(encoding="utf-8")
        with gr.Column(visible=False, elem_id="clips-section") as self.section:
            gr.HTML(heading("Clips"), elem_classes=["step"])
            self.totals = gr.HTML(NOTHING, elem_id="totals")
            self.stale = gr.HTML(NOTHING, elem_id="stale")
            with gr.Row():
                self.apply = gr.Button(
                    "Apply the changes", variant="primary", visible=False, min_width=160, elem_id="apply"
                )
                self.listen = gr.Button("Listen again to all clips", min_width=160, elem_id="listen-all")
                self.export = gr.Button("Export for other tools", min_width=160, elem_id="export-dataset")
                self.stop = gr.Button("Stop", visible=False, min_width=120, elem_id="stop-task")
            self.task = gr.HTML(NOTHING, elem_id="dataset-task")
            self.changes = gr.HTML(NOTHING, elem_id="changes", js_on_load=script)
            self.exported = gr.HTML(NOTHING, elem_id="exported")
            self.plots = gr.HTML(NOTHING, elem_id="plots")
            with gr.Row():
                self.wanted = gr.Radio(
                    [(words, key) for key, words in FILTERS.items()], value="all", label="Show", elem_id="clip-filter"
                )
                self.sort = gr.Dropdown(
                    [(words, key) for key, words in SORTS.items()], value="order", label="Order", elem_id="clip-sort"
                )
            self.table = gr.HTML(NOTHING, elem_id="clips", js_on_load=script)
            with gr.Row(elem_classes=["choose"]):
                self.page = gr.Number(value=1, precision=0, label="Page", min_width=100, elem_id="clip-page")
                self.pages = gr.HTML(NOTHING, elem_id="clip-pages")
            gr.HTML(heading("One clip"), elem_classes=["step"])
            self.key = gr.Dropdown([], value=None, label="Clip to edit", elem_id="clip")
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        self._connect()

    @property
    def look(self) -> Inputs:
        """The dataset, and what of it is shown."""
        return {"name": self.chosen, "wanted": self.wanted, "sort": self.sort, "page": self.page}

    @property
    def listing(self) -> list[Block]:
        """What `update` changes."""
        table = [self.section, self.totals, self.plots, self.pages, self.table]
        return [*table, self.stale, self.apply, self.key]

    @property
    def followed(self) -> list[Block]:
        """What `follow` changes."""
        return [self.task, self.stop, self.changes, self.exported, self.timer]

    def view(self, name: str | None) -> DatasetView | None:
        """The dataset, if there is one of that name."""
        if not name:
            return None
        try:
            return self.context.studio.datasets.show(name)
        except EncoreError:
            return None

    def open(self, name: str | None) -> Update:
        """Show another dataset, or the same one made anew; no clip of it is being edited."""
        view = self.view(name)
        update = self.update(view)
        if view is not None and view.clips:
            update[self.key] = gr.update(choices=_clip_choices(view), value=None)
        return update

    def update(
        self, view: DatasetView | None, wanted: str = "all", sort: str = "order", page: float | None = 1
    ) -> Update:
        """Show the clips that are wanted."""
        if view is None or not view.clips:
            messages = [self.totals, self.plots, self.pages, self.table, self.stale]
            hidden: Update = {self.section: HIDE, self.apply: HIDE, self.key: gr.update(choices=[], value=None)}
            return hidden | dict.fromkeys(messages, NOTHING)
        return {
            self.section: SHOW,
            self.totals: totals_html(view),
            self.plots: plots_html(view),
            **self._table(view, wanted, sort, page),
            **self._stale(are_current=view.rows_are_current),
            self.key: gr.update(choices=_clip_choices(view)),
        }

    def hear(self, clip: ClipRow) -> HeardClip | None:
        """The file to play a clip from, and its peaks; None if its recording is gone."""
        place = self.context.files.place(clip.audio)
        return HeardClip(path=place, envelope=_envelope(clip.audio)) if place is not None else None

    def start_listening(self, name: str | None, keys: Sequence[str] | None) -> Update:
        """Start to transcribe some clips again, or all."""
        datasets = self.context.studio.datasets

        def listen(task: BackgroundTask[Outcome]) -> Outcome:
            """Transcribe the clips once more, without changing their text."""
            return Outcome(changes=tuple(datasets.retranscribe(str(name), keys, progress=task.report)))

        return self._start(name, "Listening again", listen)

    def open_changes(self, name: str | None, view: DatasetView | None) -> list[TranscriptChange] | None:
        """What was heard otherwise and not been taken over since; None if nothing was listened to."""
        state = self.tasks.state(str(name))
        if view is None or state is None or state.result is None or state.result.changes is None:
            return None
        texts = {clip.key: clip.text for clip in view.clips}
        return [one for one in state.result.changes if texts.get(one.key) != " ".join(one.after.split())]

    def follow(self, name: str | None) -> Update:
        """Progress of the task with this dataset, and what it came to."""
        state = self.tasks.state(str(name))
        is_running = state is not None and state.is_running
        update: Update = {
            self.task: task_line(state),
            self.stop: gr.update(visible=is_running),
            self.changes: NOTHING,
            self.exported: NOTHING,
            self.timer: gr.Timer(active=is_running),
        }
        outcome = state.result if state is not None else None
        if outcome is not None and outcome.changes is not None:
            view = self.view(name)
            if view is not None:
                changes = self.open_changes(name, view) or []
                update[self.changes] = changes_html(changes, numbers_of(view), "en")
        if outcome is not None and outcome.exported is not None:
            update[self.exported] = exported_line(str(name), *outcome.exported)
        return update

    def _connect(self) -> None:
        turned = [self.wanted.input, self.sort.input, self.page.submit, self.page.input]
        bind(turned, self._turn, self.look, [self.pages, self.table], api="show_clips")
        chosen = {"name": self.chosen}
        bind(self.apply.click, self._apply, chosen, self.followed, api="apply_changes")
        bind(self.listen.click, self._listen_to_all, chosen, self.followed, api="listen_again")
        bind(self.export.click, self._export, chosen, self.followed, api="export_dataset")
        bind(self.stop.click, self._stop, chosen, quick=True)
        ticked = bind(self.timer.tick, self.follow, chosen, self.followed, api="follow_task", quick=True)
        bind(ticked.then, self._look_for_edits, chosen, [self.stale, self.apply], quick=True)

    def _turn(self, name: str | None, wanted: str, sort: str, page: float | None) -> Update:
        """Another page, order or choice of the same clips."""
        view = self.view(name)
        return self._table(view, wanted, sort, page) if view is not None else {}

    def _apply(self, name: str | None) -> Update:
        """Start to bring the files up to date."""

        def apply(_: BackgroundTask[Outcome]) -> Outcome:
            """Write the training files again."""
            self.context.studio.datasets.rebuild_rows(str(name))
            return Outcome()

        return self._start(name, "Applying the changes", apply)

    def _listen_to_all(self, name: str | None) -> Update:
        return self.start_listening(name, None)

    def _export(self, name: str | None) -> Update:
        """Start to pack the clips for other tools."""

        def export(_: BackgroundTask[Outcome]) -> Outcome:
            """Write the clips into a folder, and the folder into a zip archive."""
            place = unguessable_path(self.context.folder, f"{name}-dataset")
            num_clips = self.context.studio.datasets.export(str(name), place)
            packed = Path(shutil.make_archive(str(place), "zip", place))
            shutil.rmtree(place)
            return Outcome(exported=(packed, num_clips))

        return self._start(name, "Packing the clips", export)

    def _start(self, name: str | None, what: str, work: Callable[[BackgroundTask[Outcome]], Outcome]) -> Update:
        if name:
            self.tasks.start(name, what, work)
        return self.follow(name)

    def _stop(self, name: str | None) -> None:
        self.tasks.cancel(str(name))

    def _look_for_edits(self, name: str | None) -> Update:
        """Whether the files are behind the edits by now."""
        try:
            return self._stale(are_current=self.context.studio.datasets.rows_are_current(str(name)))
        except EncoreError:
            return {}

    def _stale(self, *, are_current: bool) -> Update:
        return {self.stale: stale_line(are_current=are_current), self.apply: gr.update(visible=not are_current)}

    def _table(self, view: DatasetView, wanted: str, sort: str, page: float | None) -> Update:
        clips = select_clips(view, wanted, sort)
        num_pages = max(1, -(-len(clips) // PAGE_CLIPS))
        number = min(max(1, int(page or 1)), num_pages)
        shown = clips[(number - 1) * PAGE_CLIPS : number * PAGE_CLIPS]
        heard = {clip.key: found for clip in shown if (found := self.hear(clip)) is not None}
        return {
            self.pages: note(f"{count_of(len(clips), 'clip')}, page {number} of {num_pages}."),
            self.table: clips_table(shown, numbers_of(view), heard),
        }


def _clip_choices(view: DatasetView) -> list[tuple[str, str]]:
    return [(f"Clip {number}: {clip.text[:60]}", clip.key) for number, clip in enumerate(view.clips, 1)]


@lru_cache(maxsize=2000)
def _envelope(path: Path) -> tuple[float, ...]:
    """Peaks of a clip; clips are named by their content, so they never change."""
    samples, _ = read_own_wav(path)
    return peak_envelope(samples, NUM_BARS)
