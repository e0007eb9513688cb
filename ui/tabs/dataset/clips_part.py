"""What the lower half of the dataset tab consists of: totals, plots, the table of clips, and its buttons."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from ui.html import base as render
from ui.tabs.dataset.clip_editor import EditorPart, build_editor
from ui.tabs.dataset.render_clips import FILTERS, SORTS

SCRIPT = Path(__file__).with_name("clip_buttons.js")
POLL_SECONDS = 1.0

Values = list[Any]
"""For Gradio: one for each output."""


@dataclass(frozen=True, kw_only=True)
class ClipsPart:
    """Its components."""

    section: gr.Column
    totals: gr.HTML
    plots: gr.HTML
    wanted: gr.Radio
    sort: gr.Dropdown
    page: gr.Number
    pages: gr.HTML
    table: gr.HTML
    editor: EditorPart
    stale: gr.HTML
    apply: gr.Button
    listen: gr.Button
    export: gr.Button
    stop: gr.Button
    task: gr.HTML
    changes: gr.HTML
    exported: gr.HTML
    timer: gr.Timer

    @property
    def listing(self) -> Values:
        """What `ClipsShelf.list` gives values for."""
        table = [self.section, self.totals, self.plots, self.pages, self.table]
        return [*table, self.stale, self.apply, self.editor.key]

    @property
    def turned(self) -> Values:
        """What `ClipsShelf.turn` gives values for."""
        return [self.pages, self.table]

    @property
    def everything(self) -> Values:
        """What `ClipsShelf.open` gives values for."""
        return [*self.listing, self.editor.body]

    @property
    def unchanged(self) -> Values:
        """As many values as `everything`, to leave all as it is."""
        return [gr.skip()] * len(self.everything)

    @property
    def background_tasks(self) -> Values:
        """What `ClipsShelf.follow` gives values for."""
        return [self.task, self.stop, self.changes, self.exported, self.timer]


def build_clips_part() -> ClipsPart:
    """Lay it out; hidden until there is a clip."""
    script = SCRIPT.read_text(encoding="utf-8")
    with gr.Column(visible=False, elem_id="clips-section") as section:
        gr.HTML("<h2>Clips</h2>", elem_classes=["step"])
        totals = gr.HTML(render.NOTHING, elem_id="totals")
        stale = gr.HTML(render.NOTHING, elem_id="stale")
        with gr.Row():
            apply = gr.Button("Apply the changes", variant="primary", visible=False, min_width=160, elem_id="apply")
            listen = gr.Button("Listen again to all clips", min_width=160, elem_id="listen-all")
            export = gr.Button("Export for other tools", min_width=160, elem_id="export-dataset")
            stop = gr.Button("Stop", visible=False, min_width=120, elem_id="stop-errand")
        task = gr.HTML(render.NOTHING, elem_id="dataset-errand")
        changes = gr.HTML(render.NOTHING, elem_id="changes", js_on_load=script)
        exported = gr.HTML(render.NOTHING, elem_id="exported")
        plots = gr.HTML(render.NOTHING, elem_id="plots")
        with gr.Row():
            wanted = gr.Radio(
                [(words, key) for key, words in FILTERS.items()], value="all", label="Show", elem_id="clip-filter"
            )
            sort = gr.Dropdown(
                [(words, key) for key, words in SORTS.items()], value="order", label="Order", elem_id="clip-sort"
            )
        table = gr.HTML(render.NOTHING, elem_id="clips", js_on_load=script)
        with gr.Row(elem_classes=["choose"]):
            page = gr.Number(value=1, precision=0, label="Page", min_width=100, elem_id="clip-page")
            pages = gr.HTML(render.NOTHING, elem_id="clip-pages")
        editor = build_editor()
    return ClipsPart(
        section=section,
        totals=totals,
        plots=plots,
        wanted=wanted,
        sort=sort,
        page=page,
        pages=pages,
        table=table,
        editor=editor,
        stale=stale,
        apply=apply,
        listen=listen,
        export=export,
        stop=stop,
        task=task,
        changes=changes,
        exported=exported,
        timer=gr.Timer(POLL_SECONDS, active=False),
    )
