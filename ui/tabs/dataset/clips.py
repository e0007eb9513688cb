"""The clips of the chosen dataset: how much there is, a list of them, and what is done with many at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.blocks import Block

from backend.audio.canonical import read_part
from backend.audio.quality import peak_envelope
from backend.background_tasks import BackgroundTask, BackgroundTasks
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import ClipRow, DatasetView, TranscriptChange
from backend.errors import EncoreError
from backend.evaluation.take_scores import read_own_wav
from backend.voices.consent import Consent
from training.style_name import MAX_STYLE_LENGTH
from ui.context import PageContext
from ui.events import HIDE, SHOW, Inputs, Update, bind
from ui.html.messages import NOTHING, failure, says, task_line
from ui.tabs.dataset.clip_rows import (
    CONTEXT_SECONDS,
    PAGE_CLIPS,
    Answer,
    HeardClip,
    clip_list,
    filter_choices,
    pages_html,
    select_clips,
    sort_choices,
)
from ui.tabs.dataset.render import exported_line, stale_line, statistics_html, summary_html
from ui.web.temporary import unguessable_path
from ui.words.words import say, word

NUM_BARS = 60
POLL_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a task with all clips came to: texts heard otherwise, or an archive and its number of clips."""

    changes: tuple[TranscriptChange, ...] | None = None
    exported: tuple[Path, int] | None = None


@dataclass(frozen=True, kw_only=True)
class BeforeAll:
    """What the user had said of clips, by their keys, before the last step with many of them."""

    verdicts: Mapping[str, Verdict | None] = field(default_factory=dict)
    styles: Mapping[str, str | None] = field(default_factory=dict)


class ClipsPart:
    """The clips of the `chosen` dataset; `tasks` are by its name. Hidden until there is a clip."""

    def __init__(self, context: PageContext, chosen: gr.Dropdown) -> None:
        self.context, self.chosen = context, chosen
        self.tasks: BackgroundTasks[Outcome] = BackgroundTasks()
        script = Path(__file__).with_name("clip_rows.js").read_text(encoding="utf-8")
        with gr.Column(visible=False, elem_id="clips-section") as self.section:
            with gr.Row(elem_id="summary-card", elem_classes=["card"]):
                self.totals = gr.HTML(NOTHING, elem_id="totals")
                with gr.Column(min_width=200, scale=0, elem_id="summary-keys"):
                    self.tune = gr.Button(word("data.tune"), variant="primary", min_width=160, elem_id="to-tune")
                    self.apply = gr.Button(
                        word("data.apply"), variant="primary", visible=False, min_width=160, elem_id="apply"
                    )
            self.stale = gr.HTML(NOTHING, elem_id="stale")
            with gr.Row(elem_id="clip-bar"):
                self.wanted = gr.Radio(
                    [("…", "all")],
                    value="all",
                    label=word("data.show"),
                    show_label=False,
                    elem_id="clip-filter",
                    elem_classes=["pills"],
                )
                self.sort = gr.Dropdown(
                    [("…", "order")],
                    value="order",
                    label=word("data.order"),
                    show_label=False,
                    min_width=160,
                    scale=0,
                    elem_id="clip-sort",
                )
            with gr.Row(elem_id="bulk"):
                self.accept_all = gr.Button("…", size="sm", min_width=120, elem_id="accept-all")
                self.reject_all = gr.Button("…", size="sm", min_width=120, elem_id="reject-all")
                self.listen = gr.Button(word("data.transcribe_all"), size="sm", min_width=120, elem_id="listen-all")
                self.export = gr.Button(word("data.export"), size="sm", min_width=120, elem_id="export-dataset")
                self.stop = gr.Button(word("data.stop"), size="sm", visible=False, min_width=80, elem_id="stop-task")
            self._lay_out_styles()
            self.task = gr.HTML(NOTHING, elem_id="dataset-task")
            with gr.Row(visible=False, elem_id="bulk-done") as self.done:
                self.said = gr.HTML(NOTHING)
                self.undo = gr.Button(word("data.undo"), size="sm", min_width=80, elem_id="undo-bulk")
            self.exported = gr.HTML(NOTHING, elem_id="exported")
            self.table = gr.HTML(NOTHING, elem_id="clips", js_on_load=script)
            self.pages = gr.HTML(NOTHING, elem_id="clip-pages")
            with gr.Accordion(word("data.statistics"), open=False, elem_id="statistics"):
                self.plots = gr.HTML(NOTHING, elem_id="plots")
        # What the rows send; the page of the list is theirs, too.
        self.page = gr.Number(value=1, precision=0, visible="hidden", show_label=False, elem_id="clip-page")
        self.before = gr.State(BeforeAll())
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        self._connect()

    def _lay_out_styles(self) -> None:
        """One style for all clips that are shown."""
        with gr.Row(elem_id="bulk-style"):
            self.style = gr.Textbox(
                placeholder=word("data.style_example"),
                label=word("data.style"),
                show_label=False,
                max_length=MAX_STYLE_LENGTH,
                min_width=160,
                scale=0,
                elem_id="style-all",
            )
            self.style_all = gr.Button("…", size="sm", min_width=120, elem_id="set-style-all")

    @property
    def look(self) -> Inputs:
        """The dataset, and what of it is shown."""
        return {"name": self.chosen, "wanted": self.wanted, "sort": self.sort, "page": self.page}

    @property
    def listing(self) -> list[Block]:
        """What `update` changes."""
        table = [self.section, self.totals, self.plots, self.pages, self.table, self.wanted, self.sort]
        bulk: list[Block] = [self.accept_all, self.reject_all, self.style_all, self.done]
        return [*table, *bulk, self.stale, self.apply, self.tune]

    @property
    def followed(self) -> list[Block]:
        """What `follow` changes."""
        return [self.task, self.stop, self.exported, self.timer]

    def view(self, name: str | None) -> DatasetView | None:
        """The dataset, if there is one of that name."""
        if not name:
            return None
        try:
            return self.context.studio.datasets.show(name)
        except EncoreError:
            return None

    def open(self, name: str | None) -> Update:
        """Show another dataset, or the same one made anew, from its first clip."""
        update = self.update(self.view(name))
        return {**update, self.wanted: gr.update(**_choices(update.get(self.wanted)), value="all"), self.done: HIDE}

    def update(
        self,
        view: DatasetView | None,
        wanted: str = "all",
        sort: str = "order",
        page: float | None = 1,
        answers: Mapping[str, Answer] | None = None,
    ) -> Update:
        """Show the clips that are wanted, with answers to what was done to some of them."""
        if view is None or not view.clips:
            messages = [self.totals, self.plots, self.pages, self.table, self.stale]
            hidden: Update = {self.section: HIDE, self.apply: HIDE}
            return hidden | dict.fromkeys(messages, NOTHING)
        choices = filter_choices(view)
        shown = wanted if wanted in [key for _, key in choices] else "all"
        return {
            self.section: SHOW,
            self.totals: summary_html(view, self._consents(view.name)),
            self.plots: statistics_html(view),
            self.wanted: gr.update(choices=choices, value=shown),
            self.sort: gr.update(choices=sort_choices()),
            **self._table(view, shown, sort, page, answers),
            **self._stale(are_current=view.rows_are_current),
        }

    def hear(self, view: DatasetView, clip: ClipRow) -> HeardClip | None:
        """What is seen and played of a clip; None if its recording is gone."""
        place = self.context.files.place(clip.audio)
        if place is None:
            return None
        span, bars = clip.details.current.span, _envelope(clip.audio)
        lengths = {one.details.audio_id: one.seconds for one in view.recordings}
        total = lengths.get(clip.details.recording_audio_id) or span.end_seconds
        first, last = max(0.0, span.start_seconds - CONTEXT_SECONDS), min(total, span.end_seconds + CONTEXT_SECONDS)
        recording = self.context.studio.datasets.recording_audio(clip)
        try:
            before = _part(recording, first, span.start_seconds, clip.seconds)
            after = _part(recording, span.end_seconds, last, clip.seconds)
        except EncoreError:
            return HeardClip(path=place, envelope=bars)
        return HeardClip(path=place, envelope=bars, before=before, after=after, context=(first, max(last, first)))

    def start_listening(self, name: str | None, keys: Sequence[str] | None) -> Update:
        """Start to transcribe some clips again, or all."""
        datasets = self.context.studio.datasets

        def listen(task: BackgroundTask[Outcome]) -> Outcome:
            """Transcribe the clips once more, without changing their text."""
            return Outcome(changes=tuple(datasets.retranscribe(str(name), keys, progress=task.report)))

        return self._start(name, say("data.transcribing"), listen)

    def heard_anew(self, name: str | None) -> dict[str, str]:
        """What was heard in clips that were transcribed again, by key."""
        state = self.tasks.state(str(name))
        if state is None or state.result is None or state.result.changes is None:
            return {}
        return {change.key: change.after for change in state.result.changes}

    def follow(self, name: str | None) -> Update:
        """Progress of the task with this dataset, and what it came to."""
        state = self.tasks.state(str(name))
        is_running = state is not None and state.is_running
        update: Update = {
            self.task: task_line(state),
            self.stop: gr.update(visible=is_running),
            self.exported: NOTHING,
            self.timer: gr.Timer(active=is_running),
        }
        outcome = state.result if state is not None else None
        if outcome is not None and outcome.changes is not None:
            number = len(outcome.changes)
            words = say("data.heard_otherwise", number=number) if number else say("data.heard_the_same")
            update[self.task] = says("mixed" if number else "good", words)
        if outcome is not None and outcome.exported is not None:
            update[self.exported] = exported_line(str(name), *outcome.exported)
        return update

    def _connect(self) -> None:
        turned = [self.wanted.input, self.sort.input]
        shown = [self.pages, self.table, self.accept_all, self.reject_all, self.style_all]
        bind(turned, self._turn_to_first, self.look, [*shown, self.page], api="show_clips")
        bind(self.page.input, self._turn, self.look, shown, trigger_mode="always_last")
        chosen = {"name": self.chosen}
        bulk = [*self.listing, self.before, self.said]
        for button, verdict in ((self.accept_all, Verdict.ACCEPTED), (self.reject_all, Verdict.REJECTED)):
            bind(button.click, self._judging_all(verdict), self.look, bulk, api=f"{verdict.value}_all")
        styled = {**self.look, "style": self.style}
        bind([self.style_all.click, self.style.submit], self._set_styles, styled, bulk, api="style_all")
        bind(self.undo.click, self._undo_all, {**self.look, "before": self.before}, bulk, api="undo_all")
        bind(self.apply.click, self._apply, chosen, self.followed, api="apply_changes")
        bind(self.listen.click, self._listen_to_all, chosen, self.followed, api="listen_again")
        bind(self.export.click, self._export, chosen, self.followed, api="export_dataset")
        bind(self.stop.click, self._stop, chosen, quick=True)
        ticked = bind(self.timer.tick, self.follow, chosen, self.followed, api="follow_task", quick=True)
        stale = [self.stale, self.apply, self.tune]
        bind(ticked.then, self._look_for_edits, self.look, [*stale, *shown], quick=True)

    def _turn_to_first(self, name: str | None, wanted: str, sort: str, page: float | None) -> Update:
        """Another order or choice of the same clips."""
        return {**self._turn(name, wanted, sort, 1), self.page: 1}

    def _turn(self, name: str | None, wanted: str, sort: str, page: float | None) -> Update:
        """Another page of the same clips."""
        view = self.view(name)
        return self._table(view, wanted, sort, page) if view is not None else {}

    def _judging_all(self, verdict: Verdict) -> Callable[[str | None, str, str, float | None], Update]:
        """A handler that gives all clips that pass the filter one verdict, in one step that can be undone."""

        def judge(name: str | None, wanted: str, sort: str, page: float | None) -> Update:
            """Overrule what is shown, on all pages."""
            view = self.view(name)
            if view is None:
                return {}
            clips = select_clips(view, wanted, sort)
            try:
                before = self.context.studio.datasets.overrule_all(view.name, {clip.key: verdict for clip in clips})
            except EncoreError as error:
                return {self.done: SHOW, self.said: failure(error), self.before: BeforeAll()}
            words = "data.accepted_all" if verdict is Verdict.ACCEPTED else "data.rejected_all"
            return self._done(name, wanted, sort, say(words, number=len(clips)), BeforeAll(verdicts=before))

        return judge

    def _set_styles(self, name: str | None, wanted: str, sort: str, page: float | None, style: str) -> Update:
        """Say of all clips that pass the filter how they are spoken, in one step that can be undone."""
        view = self.view(name)
        if view is None:
            return {}
        clips = select_clips(view, wanted, sort)
        try:
            before = self.context.studio.datasets.set_styles(view.name, {clip.key: style for clip in clips})
        except EncoreError as error:
            return {self.done: SHOW, self.said: failure(error), self.before: BeforeAll()}
        told = say("data.style_set_all" if style.strip() else "data.style_cleared_all", number=len(clips), style=style)
        return self._done(name, wanted, sort, told, BeforeAll(styles=before))

    def _done(self, name: str | None, wanted: str, sort: str, told: str, before: BeforeAll) -> Update:
        """What was done with many clips, and the way back."""
        update = self.update(self.view(name), wanted, sort)
        return {**update, self.done: SHOW, self.said: says("good", told), self.before: before}

    def _undo_all(self, name: str | None, wanted: str, sort: str, page: float | None, before: BeforeAll) -> Update:
        """Take the last step with many clips back."""
        if name and before.verdicts:
            self.context.studio.datasets.overrule_all(name, before.verdicts)
        if name and before.styles:
            self.context.studio.datasets.set_styles(name, before.styles)
        return {**self.update(self.view(name), wanted, sort, page), self.done: HIDE, self.before: BeforeAll()}

    def _apply(self, name: str | None) -> Update:
        """Start to bring the files up to date."""

        def apply(_: BackgroundTask[Outcome]) -> Outcome:
            """Write the training files again."""
            self.context.studio.datasets.rebuild_rows(str(name))
            return Outcome()

        return self._start(name, say("data.applying"), apply)

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

        return self._start(name, say("data.packing"), export)

    def _start(self, name: str | None, what: str, work: Callable[[BackgroundTask[Outcome]], Outcome]) -> Update:
        if name:
            self.tasks.start(name, what, work)
        return self.follow(name)

    def _stop(self, name: str | None) -> None:
        self.tasks.cancel(str(name))

    def _look_for_edits(self, name: str | None, wanted: str, sort: str, page: float | None) -> Update:
        """Whether the files are behind the edits by now, and what was heard anew."""
        state = self.tasks.state(str(name))
        if state is None or state.is_running:
            return {}
        try:
            stale = self._stale(are_current=self.context.studio.datasets.rows_are_current(str(name)))
        except EncoreError:
            return {}
        return {**stale, **self._turn(name, wanted, sort, page)} if self.heard_anew(name) else stale

    def _consents(self, name: str) -> list[Consent | None]:
        try:
            return list(self.context.studio.datasets.consents(name).values())
        except EncoreError:
            return []

    def _stale(self, *, are_current: bool) -> Update:
        return {
            self.stale: stale_line(are_current=are_current),
            self.apply: gr.update(visible=not are_current),
            self.tune: gr.update(visible=are_current),
        }

    def _table(
        self,
        view: DatasetView,
        wanted: str,
        sort: str,
        page: float | None,
        answers: Mapping[str, Answer] | None = None,
    ) -> Update:
        clips = select_clips(view, wanted, sort)
        num_pages = max(1, -(-len(clips) // PAGE_CLIPS))
        number = min(max(1, int(page or 1)), num_pages)
        shown = clips[(number - 1) * PAGE_CLIPS : number * PAGE_CLIPS]
        heard = {clip.key: found for clip in shown if (found := self.hear(view, clip)) is not None}
        some = gr.update(interactive=bool(clips))
        return {
            self.pages: pages_html(number, num_pages, len(clips)),
            self.table: clip_list(shown, view, heard, anew=self.heard_anew(view.name), answers=answers),
            self.accept_all: {**some, "value": say("data.accept_all", number=len(clips))},
            self.reject_all: {**some, "value": say("data.reject_all", number=len(clips))},
            self.style_all: {**some, "value": say("data.style_all", number=len(clips))},
        }


def _choices(update: object) -> dict[str, Any]:
    return {"choices": update["choices"]} if isinstance(update, dict) else {}


def _part(recording: Path, first: float, last: float, clip_seconds: float) -> tuple[float, ...]:
    """Peaks beside a clip, as close together as those of the clip."""
    if last - first < 0.02:
        return ()
    return _peaks(recording, round(first, 3), round(last, 3), max(1, round(NUM_BARS * (last - first) / clip_seconds)))


@lru_cache(maxsize=4000)
def _peaks(recording: Path, first: float, last: float, num_bars: int) -> tuple[float, ...]:
    """Recordings are named by their content, so they never change."""
    samples, _ = read_part(recording, first, last)
    return peak_envelope(samples, num_bars)


@lru_cache(maxsize=2000)
def _envelope(path: Path) -> tuple[float, ...]:
    """Peaks of a clip; clips are named by their content, so they never change."""
    samples, _ = read_own_wav(path)
    return peak_envelope(samples, NUM_BARS)
