"""The lower half of the dataset tab: totals, the table of clips, and what is done with all of them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import gradio as gr

from backend.audio.quality import peak_envelope
from backend.background_tasks import BackgroundTask, BackgroundTasks
from backend.dataset.clips.views import ClipRow, DatasetView
from backend.errors import EncoreError
from backend.evaluation.take_scores import read_own_wav
from ui.context import PageContext
from ui.errors import shows_errors
from ui.html import base as render
from ui.tabs.dataset import render as render_dataset
from ui.tabs.dataset import render_clips
from ui.tabs.dataset.clip_editor import connect_editor
from ui.tabs.dataset.clips_part import ClipsPart, Values
from ui.tabs.dataset.render_clips import PAGE_CLIPS, HeardClip
from ui.web.temporary import unguessable_path

NUM_BARS = 60


@dataclass(frozen=True)
class ClipsShelf:
    """What the handlers of this part do."""

    context: PageContext
    background_tasks: BackgroundTasks

    def open(self, name: str | None) -> Values:
        """Values for `ClipsPart.everything`: another dataset, or the same one made anew."""
        *table, key = self.list(self.view(name))
        return [*table, gr.update(choices=key["choices"], value=None), gr.update(visible=False)]

    def list(
        self, view: DatasetView | None, wanted: str = "all", sort: str = "order", page: float | None = 1
    ) -> Values:
        """Values for `ClipsPart.listing`."""
        if view is None or not view.clips:
            nothing = [render.NOTHING] * 5
            return [gr.update(visible=False), *nothing, gr.update(visible=False), gr.update(choices=[], value=None)]
        numbers = numbers_of(view)
        return [
            gr.update(visible=True),
            render_dataset.totals_html(view),
            render_dataset.plots_html(view),
            *self._table(view, wanted, sort, page),
            render_dataset.stale_line(are_current=view.rows_are_current),
            gr.update(visible=not view.rows_are_current),
            gr.update(choices=[(f"Clip {numbers[clip.key]}: {clip.text[:60]}", clip.key) for clip in view.clips]),
        ]

    def turn(self, name: str | None, wanted: str, sort: str, page: float | None) -> Values:
        """Values for `ClipsPart.turned`: another page, order or choice of the same clips."""
        view = self.view(name)
        return self._table(view, wanted, sort, page) if view is not None else [gr.skip(), gr.skip()]

    def _table(self, view: DatasetView, wanted: str, sort: str, page: float | None) -> Values:
        clips = render_clips.select_clips(view, wanted, sort)
        num_pages = max(1, -(-len(clips) // PAGE_CLIPS))
        number = min(max(1, int(page or 1)), num_pages)
        shown = clips[(number - 1) * PAGE_CLIPS : number * PAGE_CLIPS]
        heard = {clip.key: found for clip in shown if (found := self.hear(clip)) is not None}
        count = render_dataset.count_of(len(clips), "clip")
        return [
            f'<p class="note">{count}, page {number} of {num_pages}.</p>',
            render_clips.clips_table(shown, numbers_of(view), heard),
        ]

    def view(self, name: str | None) -> DatasetView | None:
        """The dataset, if there is one of that name."""
        if not name:
            return None
        try:
            return self.context.studio.datasets.show(name)
        except EncoreError:
            return None

    def hear(self, clip: ClipRow) -> HeardClip | None:
        """Where the page plays a clip from, and its peaks; None where its sound is gone."""
        place = self.context.files.place(clip.audio)
        return HeardClip(path=place, envelope=_envelope(clip.audio)) if place is not None else None

    def follow(self, name: str | None) -> Values:
        """Values for `ClipsPart.background_tasks`."""
        state = self.background_tasks.state(str(name))
        is_running = state is not None and state.is_running
        changes, exported = render.NOTHING, render.NOTHING
        if state is not None and not is_running and not state.problem:
            if isinstance(state.result, tuple):
                path, num_clips = state.result
                exported = render_dataset.exported_line(str(name), path, num_clips)
            elif isinstance(state.result, Sequence) and not isinstance(state.result, str):
                view = self.view(name)
                changes = render_clips.changes_html(state.result, numbers_of(view) if view is not None else {}, "en")
        return [
            render_dataset.task_line(state),
            gr.update(visible=is_running),
            changes,
            exported,
            gr.Timer(active=is_running),
        ]

    def listen(self, name: str | None, keys: Sequence[str] | None) -> Values:
        """Begin to transcribe some clips again, or all."""

        def work(task: BackgroundTask) -> object:
            return self.context.studio.datasets.retranscribe(str(name), keys, progress=task.report)

        return self._begin(name, "Listening again", work)

    def apply(self, name: str | None) -> Values:
        """Begin to bring the files up to date."""
        return self._begin(
            name, "Applying the changes", lambda _: self.context.studio.datasets.rebuild_rows(str(name)).digest
        )

    def export(self, name: str | None) -> Values:
        """Begin to pack the clips for other tools."""

        def work(_: BackgroundTask) -> object:
            """Write the clips and pack them, beside the page."""
            place = unguessable_path(self.context.folder, f"{name}-dataset")
            num_clips = self.context.studio.datasets.export(str(name), place)
            packed = Path(shutil.make_archive(str(place), "zip", place))
            shutil.rmtree(place)
            return packed, num_clips

        return self._begin(name, "Packing the clips", work)

    def _begin(self, name: str | None, what: str, work: Any) -> Values:
        if name:
            self.background_tasks.start(name, what, work)
        return self.follow(name)


def connect_clips_part(shelf: ClipsShelf, part: ClipsPart, chosen: gr.Dropdown) -> None:
    """Make it work; `chosen` names the dataset."""
    look = [chosen, part.wanted, part.sort, part.page]
    for event in (part.wanted.input, part.sort.input, part.page.submit, part.page.input):
        event(
            shows_errors(shelf.turn),
            look,
            part.turned,
            show_progress="hidden",
            api_name="show_clips" if event == part.wanted.input else None,
            api_visibility="undocumented" if event == part.wanted.input else "private",
        )
    for button, begin, name in (
        (part.apply, shelf.apply, "apply_changes"),
        (part.listen, lambda chosen: shelf.listen(chosen, None), "listen_again"),
        (part.export, shelf.export, "export_dataset"),
    ):
        button.click(
            shows_errors(begin),
            chosen,
            part.background_tasks,
            show_progress="hidden",
            api_name=name,
            api_visibility="undocumented",
        )
    part.stop.click(
        lambda name: shelf.background_tasks.cancel(str(name)), chosen, None, queue=False, api_visibility="private"
    )
    ticked = part.timer.tick(
        shows_errors(shelf.follow),
        chosen,
        part.background_tasks,
        queue=False,
        show_progress="hidden",
        api_name="follow_errand",
        api_visibility="undocumented",
    )
    ticked.then(
        _stale(shelf), chosen, [part.stale, part.apply], queue=False, show_progress="hidden", api_visibility="private"
    )
    connect_editor(shelf, part, chosen)


def numbers_of(view: DatasetView) -> dict[str, int]:
    """What clips are called on the page."""
    return {clip.key: number for number, clip in enumerate(view.clips, 1)}


def _stale(shelf: ClipsShelf) -> Any:
    def look(name: str | None) -> Values:
        """Whether the files are behind the edits by now."""
        try:
            are_current = shelf.context.studio.datasets.rows_are_current(str(name))
        except EncoreError:
            return [gr.skip(), gr.skip()]
        return [render_dataset.stale_line(are_current=are_current), gr.update(visible=not are_current)]

    return look


@lru_cache(maxsize=2000)
def _envelope(path: Path) -> tuple[float, ...]:
    """Peaks of a clip; clips are named by their content, so they never change."""
    samples, _ = read_own_wav(path)
    return peak_envelope(samples, NUM_BARS)
